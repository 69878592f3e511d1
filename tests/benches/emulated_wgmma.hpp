// wgmma: descriptors as the PTX ISA documents them, products that are done when waited for, registers that they hold until then.
#pragma once
#include "emulated_products.hpp"

namespace gpu {
// Bytes (row, byte) of a K-major operand behind a descriptor, no swizzle: PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory
// Layout": core matrices of 8 rows × 16 B lie in 128 B; the leading offset leads to the next along k, the stride offset to the next 8 rows.
inline u8 *described(int block, u64 d, int row, int byte) {
    if (d >> 62) fail("swizzled layouts are not modelled");
    if (d >> 49 & 7) fail("a base offset");
    const u32 start = (d & 0x3fff) << 4, leading = (d >> 16 & 0x3fff) << 4, stride = (d >> 32 & 0x3fff) << 4;
    return arena[block] + ((start + byte / 16 * leading + row / 8 * stride + row % 8 * 16 + byte % 16) & (WINDOW - 1));
}
// One wgmma.mma_async of a warp group, from its issue until it is done. Lists of operands: D, A, B, sparsity, scale-d, signs.
struct Product {
    Instruction instruction;
    bool sparse = false, registers = false, done = false;
    Shape shape{};
    std::string c, ta, tb;
    int block = 0, stored = 0; // k that A stores
    u64 descriptor_a = 0, descriptor_b = 0;
    u32 meta = 0;
    std::vector<Frame> frames;           // of each thread
    std::vector<std::vector<Ref>> sums;  // of each thread: where D is really, until it has been waited for
    std::vector<Word *> words;           // of A and B in shared memory
    Event event;
    std::vector<std::vector<std::string>> operands;
};
inline std::map<std::pair<int, int>, Event> warp_groups; // by block and number: the last product of each

inline u64 stored_at(const Product &p, u64 descriptor, int row, int column, int bits) {
    u64 word = 0;
    memcpy(&word, described(p.block, descriptor, row, column * bits / 8), bits / 8);
    return word;
}
inline void perform(Product &p) {
    const Shape s = p.shape;
    const int bits = bits_of(p.ta);
    Matrix a(s.m * s.k), b(s.k * s.n);
    for (int t = 0; t < 128 && p.registers; t++)
        fill_a(a, s.k, p.stored, 16, t / 32 * 16, p.ta, p.sparse, p.meta, p.frames[t], p.operands[1], t % 32);
    for (int row = 0; row < s.m && !p.registers; row++)
        for (int k = 0; k < p.stored; k++)
            a[row * s.k + (p.sparse ? sparse_column(p.ta, k, p.meta) : k)] = number(p.ta, stored_at(p, p.descriptor_a, row, k, bits));
    for (int k = 0; k < s.k; k++)
        for (int n = 0; n < s.n; n++) b[k * s.n + n] = number(p.tb, stored_at(p, p.descriptor_b, n, k, bits));
    for (int t = 0; t < 128; t++)
        for (int e = 0; e < s.n / 2; e++) {
            const int row = t / 32 * 16 + t % 32 / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + t % 4 * 2 + e % 2;
            double sum = 0;
            for (int k = 0; k < s.k; k++) sum += a[row * s.k + k] * b[k * s.n + column];
            add(p.c, p.sums[t].at(e / packed(p.c)), e % packed(p.c), sum);
        }
    for (Word *w : p.words) end_access(*w, READ, p.event);
    p.done = true;
}

// --- registers ---

// PTX ISA, wgmma.fence: it must stand before the first product, and between any other access to a register and a product that uses the
// same; products of one shape may follow one another on an accumulator. A may be read by several.
inline Register &taken(Thread &t, const void *place, const std::string &use) {
    Register &r = t.registers[uintptr_t(place)];
    if (!t.ordered) fail("unordered: wgmma before the first wgmma.fence");
    if (r.touched > t.ordered) fail("unordered: wgmma uses a register that was accessed behind the last wgmma.fence");
    if (r.used > t.ordered && r.use != use) fail("unordered: wgmma uses a register behind another use of it, without wgmma.fence between");
    r.used = ++t.moment;
    r.use = use;
    r.held++;
    return r;
}
inline const Ref &reference(const Frame &f, const std::string &word) { return f.refs.at(std::stoi(word.substr(1))); }
// Until they are waited for accumulators are undefined: what the thread sees in them is poison.
inline void take_registers(Product &p, Thread &t, const Frame &f) {
    p.sums.emplace_back();
    for (auto &word : p.operands[0]) {
        const Ref &ref = reference(f, word);
        Register &r = taken(t, ref.place, "D of " + p.instruction.name);
        if (r.held == 1) {
            r.hidden = ref.get();
            ref.set(~0ull);
        }
        p.sums.back().push_back({&r.hidden, ref.size});
    }
    if (p.registers)
        for (auto &word : p.operands[1]) taken(t, reference(f, word).home, "A");
}
inline void give_registers(const Product &p, const Frame &f) {
    auto given = [&](const void *place) -> Register & {
        Register &r = now->registers[uintptr_t(place)];
        r.held--;
        return r;
    };
    for (auto &word : p.operands[0]) {
        const Ref &ref = reference(f, word);
        const Register &r = given(ref.place);
        if (!r.held) ref.set(r.hidden);
    }
    if (p.registers)
        for (auto &word : p.operands[1]) given(reference(f, word).home);
}

// --- issue and wait ---

inline void check_operands(const Product &p) {
    auto &words = p.operands;
    const Frame &f = p.frames[0];
    const size_t sparsity = p.sparse ? 2 : 0;
    const size_t plain = 3 + sparsity + 1 + (p.ta == "s8" ? 0 : 2) + (bits_of(p.ta) == 16 ? p.registers ? 1 : 2 : 0);
    if (words.size() != plain) fail("operands: " + p.instruction.name);
    if (f.value(words[3 + sparsity][0]) != 1) fail("scale-d");
    for (size_t w = 4 + sparsity, n = 0; w < words.size(); w++, n++)
        if (words[w][0] != (n < 2 && p.ta != "s8" ? "1" : "0")) fail("signs or transposition");
    for (auto &one : p.frames)
        if ((!p.registers && one.value(words[1][0]) != p.descriptor_a) || one.value(words[2][0]) != p.descriptor_b)
            fail("descriptors differ");
}
// What the product will read, in the async proxy: ordered before it must be what each of its threads knows (PTX ISA, wgmma.fence).
inline void hold_words(Product &p, const std::vector<Given *> &all) {
    const int bits = bits_of(p.ta);
    auto hold = [&](u64 descriptor, int rows, int bytes) {
        for (int row = 0; row < rows; row++)
            for (int byte = 0; byte < bytes; byte += 4) p.words.push_back(word_at(described(p.block, descriptor, row, byte)));
    };
    if (!p.registers) hold(p.descriptor_a, p.shape.m, p.stored * bits / 8);
    hold(p.descriptor_b, p.shape.n, p.shape.k * bits / 8);
    std::map<int, u32> latest; // write of each agent
    for (Word *w : p.words) {
        begin_access(*w, READ, now->fenced);
        u32 &time = latest[w->written.agent];
        time = std::max(time, w->written.time);
    }
    for (auto &[agent, time] : latest)
        for (Given *one : all)
            if (!one->thread->fenced.knows(Event{agent, time})) fail("unordered: wgmma reads shared memory that another thread wrote");
}
inline void issue_wgmma(const Instruction &i, Frame &f) {
    auto parts = dots(i.name);
    auto p = std::make_shared<Product>();
    p->instruction = i;
    p->operands = lists(i);
    p->sparse = parts[2] == "sp";
    const int base = p->sparse ? 5 : 4;
    p->shape = shape_of(parts[base]);
    p->c = parts[base + 1], p->ta = parts[base + 2], p->tb = parts[base + 3];
    p->registers = p->operands[1].size() == 4;
    p->block = now->block;
    p->stored = p->sparse ? p->shape.k / 2 : p->shape.k;
    p->descriptor_a = p->registers ? 0 : f.value(p->operands[1][0]);
    p->descriptor_b = f.value(p->operands[2][0]);
    p->meta = p->sparse ? u32(f.value(p->operands[3][0])) : 0;
    Given mine{&f, p->operands, now};
    together(128, &mine, [&](std::vector<void *> &members) {
        std::vector<Given *> all;
        for (void *one : members) all.push_back((Given *)one);
        for (Given *one : all) p->frames.push_back(*one->frame);
        check_operands(*p);
        hold_words(*p, all);
        Event &last = warp_groups[{now->block, now->rank / 128}];
        if (last.agent < 0) last.agent = agents++;
        last.time++;
        p->event = last;
        for (Given *one : all) {
            take_registers(*p, *one->thread, *one->frame);
            one->thread->products.open.push_back(p);
        }
    });
}
// PTX ISA, wgmma.wait_group: all but the `most` youngest groups are complete. An implicit proxy fence follows the completion.
inline void wait_wgmma(size_t most) {
    now->products.wait(most, [](std::shared_ptr<Product> &p) {
        if (!p->done) perform(*p);
        learn_completion(p->event);
        give_registers(*p, p->frames[now->rank % 128]);
    });
}
inline void fence_wgmma() { now->ordered = ++now->moment; }
} // namespace gpu
