// mma: fragments and sparsity as the PTX ISA documents them; sums are exact, rounded once an instruction.
#pragma once
#include "emulated_ordering.hpp"

namespace gpu {
struct Shape {
    int m, n, k;
};
inline Shape shape_of(const std::string &word) {
    Shape s;
    if (sscanf(word.c_str(), "m%dn%dk%d", &s.m, &s.n, &s.k) != 3) fail("no shape: " + word);
    return s;
}
typedef std::vector<double> Matrix;
inline u64 cell(u64 word, int bits, int which) { return bits == 64 ? word : word >> (bits * which) & ((1ull << bits) - 1); }

// Element `e` of thread `lane` in a fragment of A (rows × k), PTX ISA "Matrix Fragments for mma": (row, column).
inline void place_a(const std::string &type, int rows, int e, int lane, int &row, int &column) {
    const int bits = bits_of(type), group = lane >> 2, quad = lane & 3, each = bits >= 32 ? 1 : 32 / bits;
    const bool lower = rows == 8 ? false : e / each % 2;
    const int step = rows == 8 ? e / each : e / each / 2;
    row = group + (lower ? 8 : 0);
    column = quad * each + e % each + step * 4 * each;
}
// …of B (k × 8): (row, column)
inline void place_b(const std::string &type, int e, int lane, int &row, int &column) {
    const int bits = bits_of(type), each = bits >= 32 ? 1 : 32 / bits;
    row = (lane & 3) * each + e % each + e / each * 4 * each;
    column = lane >> 2;
}
// Where the kept elements of a sparse row stand: of a run of 4 (TF32: 2), by the metadata's nibble.
inline int sparse_column(const std::string &type, int column, u32 meta) {
    const u32 nibble = meta & 15;
    if (meta != nibble * 0x11111111u) fail("metadata that differ from place to place are not modelled");
    if (type == "tf32") {
        if (nibble != 0xE && nibble != 0x4) fail("metadata of TF32");
        return column * 2 + (nibble == 0xE);
    }
    const int first = nibble & 3, second = nibble >> 2;
    if (first >= second) fail("ordered metadata must ascend");
    return column / 2 * 4 + (column % 2 ? second : first);
}
inline void add(const std::string &type, const Ref &ref, int which, double product) {
    u64 word = ref.get();
    if (type == "f64") {
        double d;
        memcpy(&d, &word, 8);
        d += product;
        memcpy(&word, &d, 8);
    } else if (type == "s32") word = u32(int32_t(u32(word)) + int32_t(product));
    else if (type == "f32") {
        float f;
        u32 low = u32(word);
        memcpy(&f, &low, 4);
        f = float(f + product);
        memcpy(&low, &f, 4);
        word = low;
    } else {
        const int shift = 16 * which;
        u16 old = u16(word >> shift);
        word = (word & ~(0xffffull << shift)) | u64(half(small_float(old, 5, 10) + product)) << shift;
    }
    ref.set(word);
}
inline int packed(const std::string &type) { return type == "f16" ? 2 : 1; }

// What a thread gives to an instruction of several.
struct Given {
    const Frame *frame;
    std::vector<std::vector<std::string>> lists;
    Thread *thread;
};
inline void fill_a(Matrix &a, int k, int stored, int rows, int top, const std::string &type, bool sparse, u32 meta,
                   const Frame &f, const std::vector<std::string> &words, int lane) {
    const int bits = bits_of(type), each = bits >= 32 ? 1 : 32 / bits;
    for (int e = 0; e < int(words.size()) * each; e++) {
        int row, column;
        place_a(type, rows, e, lane, row, column);
        if (column >= stored) fail("a fragment of A that is too wide");
        a[(top + row) * k + (sparse ? sparse_column(type, column, meta) : column)] =
            number(type, cell(f.value(words[e / each]), bits, e % each));
    }
}
inline void mma(const Instruction &i, Frame &f) {
    auto parts = dots(i.name);
    const bool sparse = parts[1].rfind("sp", 0) == 0;
    const Shape s = shape_of(parts[sparse ? 4 : 3]);
    const std::string c = parts[parts.size() - 4], ta = parts[parts.size() - 3], tb = parts[parts.size() - 2];
    Given mine{&f, lists(i), now};
    together(32, &mine, [&](std::vector<void *> &all) {
        const int bits = bits_of(ta), each = bits >= 32 ? 1 : 32 / bits, stored = sparse ? s.k / 2 : s.k;
        Matrix a(s.m * s.k), b(s.k * s.n);
        auto given = [&](int lane) { return (Given *)all[lane]; };
        auto meta = [&](int lane) { return sparse ? u32(given(lane)->frame->value(given(lane)->lists[4][0])) : 0; };
        for (int lane = 0; lane < 32; lane++) {
            if (meta(lane) != meta(0)) fail("metadata differ");
            if (int(given(lane)->lists[1].size()) * each * 32 != s.m * stored || int(given(lane)->lists[2].size()) * each * 32 != s.n * s.k)
                fail("registers: " + i.name);
            fill_a(a, s.k, stored, s.m, 0, ta, sparse, meta(0), *given(lane)->frame, given(lane)->lists[1], lane);
            auto &words = given(lane)->lists[2];
            for (int e = 0; e < int(words.size()) * each; e++) {
                int row, column;
                place_b(tb, e, lane, row, column);
                b[row * s.n + column] = number(tb, cell(given(lane)->frame->value(words[e / each]), bits, e % each));
            }
        }
        for (int lane = 0; lane < 32; lane++)
            for (int e = 0; e < s.m * s.n / 32; e++) {
                const int row = lane / 4 + 8 * (e / 2), column = lane % 4 * 2 + e % 2;
                double sum = 0;
                for (int k = 0; k < s.k; k++) sum += a[row * s.k + k] * b[k * s.n + column];
                auto &word = given(lane)->lists[0][e / packed(c)];
                if (word != given(lane)->lists[3][e / packed(c)]) fail("C and D are not the same");
                add(c, given(lane)->frame->refs.at(std::stoi(word.substr(1))), e % packed(c), sum);
            }
    });
}
} // namespace gpu
