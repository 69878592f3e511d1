// mma and wgmma: fragments, descriptors and sparsity as the PTX ISA documents them; sums are exact, rounded once an instruction.
#pragma once
#include "emulated_threads.hpp"

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

struct Given {
    Frame *frame;
    std::vector<std::vector<std::string>> lists;
};
inline void fill_a(Matrix &a, int k, int stored, int rows, int top, const std::string &type, bool sparse, u32 meta, Frame &f,
                   const std::vector<std::string> &words, int lane) {
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
    Given mine{&f, lists(i)};
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
// Bytes (row, byte) of a K-major operand behind a descriptor, no swizzle: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
// Layout": core matrices of 8 rows × 16 B lie in 128 B; the leading offset leads to the next along k, the stride offset to the next 8 rows.
inline const u8 *described(u64 d, int row, int byte) {
    if (d >> 62) fail("swizzled layouts are not modelled");
    if (d >> 49 & 7) fail("a base offset");
    const u32 start = (d & 0x3fff) << 4, leading = (d >> 16 & 0x3fff) << 4, stride = (d >> 32 & 0x3fff) << 4;
    return arena[now->block] + ((start + byte / 16 * leading + row / 8 * stride + row % 8 * 16 + byte % 16) & (WINDOW - 1));
}
inline u64 stored_at(u64 descriptor, int row, int column, int bits) {
    u64 word = 0;
    memcpy(&word, described(descriptor, row, column * bits / 8), bits / 8);
    return word;
}
inline void wgmma(const Instruction &i, Frame &f) {
    auto parts = dots(i.name);
    const bool sparse = parts[2] == "sp";
    const int base = sparse ? 5 : 4;
    const Shape s = shape_of(parts[base]);
    const std::string c = parts[base + 1], ta = parts[base + 2], tb = parts[base + 3];
    Given mine{&f, lists(i)};
    together(128, &mine, [&](std::vector<void *> &all) {
        auto given = [&](int t) { return (Given *)all[t]; };
        auto &words = mine.lists;
        const bool registers = words[1].size() == 4;
        const size_t plain = 3 + (sparse ? 2 : 0) + 1 + (ta == "s8" ? 0 : 2) + (bits_of(ta) == 16 ? registers ? 1 : 2 : 0);
        if (words.size() != plain) fail("operands: " + i.name);
        const int stored = sparse ? s.k / 2 : s.k, bits = bits_of(ta);
        const u32 meta = sparse ? u32(f.value(words[3][0])) : 0;
        if (f.value(words[3 + (sparse ? 2 : 0)][0]) != 1) fail("scale-d");
        for (size_t w = 4 + (sparse ? 2 : 0), n = 0; w < words.size(); w++, n++)
            if (words[w][0] != (n < 2 && ta != "s8" ? "1" : "0")) fail("signs or transposition");
        Matrix a(s.m * s.k), b(s.k * s.n);
        const u64 da = registers ? 0 : f.value(words[1][0]), db = f.value(words[2][0]);
        for (int t = 0; t < 128; t++) {
            if (!registers && given(t)->frame->value(words[1][0]) != da || given(t)->frame->value(words[2][0]) != db)
                fail("descriptors differ");
            if (registers) fill_a(a, s.k, stored, 16, t / 32 * 16, ta, sparse, meta, *given(t)->frame, words[1], t % 32);
        }
        for (int row = 0; row < s.m && !registers; row++)
            for (int k = 0; k < stored; k++)
                a[row * s.k + (sparse ? sparse_column(ta, k, meta) : k)] = number(ta, stored_at(da, row, k, bits));
        for (int k = 0; k < s.k; k++)
            for (int n = 0; n < s.n; n++) b[k * s.n + n] = number(tb, stored_at(db, n, k, bits));
        for (int t = 0; t < 128; t++)
            for (int e = 0; e < s.n / 2; e++) {
                const int row = t / 32 * 16 + t % 32 / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + t % 4 * 2 + e % 2;
                double sum = 0;
                for (int k = 0; k < s.k; k++) sum += a[row * s.k + k] * b[k * s.n + column];
                add(c, given(t)->frame->refs.at(std::stoi(words[0].at(e / packed(c)).substr(1))), e % packed(c), sum);
            }
    });
}
} // namespace gpu
