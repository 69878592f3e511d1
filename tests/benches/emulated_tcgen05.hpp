// tcgen05: tensor memory, products that are done when their commit is waited for, instruction descriptors and block scales as the PTX ISA
// documents them. Of a pair of blocks the one of even rank issues.
#pragma once
#include "emulated_copies.hpp"
#include "emulated_wgmma.hpp"

namespace gpu {
constexpr int TENSOR_COLUMNS = 512, TENSOR_LANES = 128;
struct TensorMemory {
    u32 words[TENSOR_LANES][TENSOR_COLUMNS];
    int allocated = 0;
    bool given_back = false;   // by the other block of a pair, which gives back what both hold
    std::vector<Event> stored; // by tcgen05.st, behind its wait and its fence
    int unfenced = 0;          // stores that no fence has followed yet
    Event multiplied;          // the last product that is done
};
inline TensorMemory tensor[MOST];
struct Commit {
    u32 barrier;
    std::vector<std::function<void(Event)>> products;
};
inline std::deque<Commit> commits; // in the order in which they are done
inline std::vector<std::function<void(Event)>> uncommitted;
inline void forget_tensors() {
    for (auto &t : tensor) t = TensorMemory{}, memset(t.words, 0xA5, sizeof t.words);
    commits.clear();
    uncommitted.clear();
}

// --- tensor memory ---

inline bool paired(const Instruction &i) { return i.name.find("cta_group::2") != std::string::npos; }
inline int columns(u64 count) {
    if (count < 32 || count > TENSOR_COLUMNS || (count & (count - 1))) fail("columns of tensor memory that are no power of 2 from 32 to 512");
    return int(count);
}
inline void allocate_tensor(u32 to, u64 count) {
    if (now->rank % 32) return;
    TensorMemory &t = tensor[now->block];
    if (t.allocated) fail("tensor memory that is allocated twice");
    t.allocated = columns(count);
    access(at_shared(to), 4, WRITE);
    *(u32 *)at_shared(to) = 0;
}
inline void free_tensor(u64 at, u64 count, bool pair) {
    if (now->rank % 32) return;
    if (at || tensor[now->block].allocated != columns(count)) fail("tensor memory is given back that was not allocated so");
    tensor[now->block].allocated = 0;
    if (pair) tensor[now->block ^ 1].given_back = true;
}
inline u32 &tensor_word(int block, int lane, u32 column) {
    if (int(column) >= tensor[block].allocated) fail("a column of tensor memory that is not allocated");
    if (tensor[block].given_back) fail("tensor memory that the other block of the pair gives back");
    return tensor[block].words[lane][column];
}
// Each warp reaches the 32 lanes that its number in its warpgroup gives it.
inline u32 &own_word(u64 at) {
    const int warp = now->rank / 32 % 4;
    if (int(at >> 16) != 32 * warp) fail("a warp accesses lanes of tensor memory that are not its own");
    return tensor_word(now->block, 32 * warp + now->rank % 32, u32(at & 0xffff));
}
inline void store_tensor(u64 at, u64 value) {
    own_word(at) = u32(value);
    now->tensor_stores++;
    tensor[now->block].unfenced++;
}
inline u64 load_tensor_word(u64 at) {
    if (!now->tensor_seen.knows(tensor[now->block].multiplied)) fail("unordered: tensor memory is read that a product may still write");
    return own_word(at);
}
inline void wait_for_stores() { now->tensor_waited = true; }
// PTX ISA, tcgen05.fence: what lies before it is ordered before what follows a later synchronization, and the reverse.
inline void fence_before_sync() {
    if (now->tensor_stores && now->tensor_waited) {
        tensor[now->block].unfenced -= now->tensor_stores;
        tensor[now->block].stored.push_back(now->event());
        now->tick();
        now->tensor_stores = 0;
    }
}
inline void fence_after_sync() { now->tensor_seen = now->seen; }

// --- products ---

// PTX ISA, instruction descriptor: the same places for all kinds, but for D's type and what belongs to scales.
struct InstructionDescriptor {
    u32 bits;
    int field(int at, int width) const { return int(bits >> at & ((1u << width) - 1)); }
    int n() const { return field(17, 6) << 3; }
    int m() const { return field(24, 5) << 4; }
};
inline std::string element_type(const std::string &kind, int number) {
    static const std::map<std::string, std::vector<std::string>> types = {
        {"f16", {"f16", "bf16"}},          {"tf32", {"", "", "tf32"}},     {"f8f6f4", {"e4m3", "e5m2"}},      {"i8", {"", "s8"}},
        {"mxf8f6f4", {"e4m3", "e5m2"}}, {"mxf4", {"", "e2m1"}}, {"mxf4nvf4", {"", "e2m1"}},
    };
    const auto &known = types.at(kind);
    if (number >= int(known.size()) || known[number].empty()) fail("a type that " + kind + " has not");
    return known[number];
}
inline double scale_of(u8 code, bool exponent) { return exponent ? std::ldexp(1.0, int(code) - 127) : small_float(code, 4, 3); }
struct TensorProduct {
    std::string kind, a, b;
    InstructionDescriptor descriptor;
    bool pair = false, accumulate = false;
    int scales = 0, block = 0;
    u32 d = 0, of_a = 0, of_b = 0;
    u64 describes_a = 0, describes_b = 0;
    std::vector<Word *> words;

    int bits() const { return a == "e2m1" ? 4 : bits_of(a); }
    int k() const { return 256 / bits(); }
    int blocks() const { return pair ? 2 : 1; }
    int rows() const { return descriptor.m() / blocks(); }
    int columns() const { return descriptor.n() / blocks(); } // of B in one block's shared memory
    double element(const std::string &type, int from, u64 described_by, int row, int column) const {
        if (bits() == 4) return small_float(*described(from, described_by, row, column / 2) >> column % 2 * 4 & 15, 2, 1);
        u64 word = 0;
        memcpy(&word, described(from, described_by, row, column * bits() / 8), bits() / 8);
        return number(type, word);
    }
    // Four warps' lanes hold the same: PTX ISA, layout of the scale factors in tensor memory.
    double scale(u32 column, int row, int first, int k_) const {
        if (!scales) return 1;
        const int byte = first + k_ / (k() / scales);
        const u32 word = tensor_word(block, row % 32, column + row / 32);
        for (int lane = row % 32; lane < TENSOR_LANES; lane += 32)
            if (tensor_word(block, lane, column + row / 32) != word) fail("scales that differ between the lanes of warps");
        if (byte > 3) fail("a scale behind its word");
        return scale_of(u8(word >> 8 * byte), descriptor.field(23, 1));
    }
    void perform(Event done) {
        const int n = descriptor.n();
        Matrix right(size_t(n) * k());
        for (int c = 0; c < n; c++)
            for (int i = 0; i < k(); i++)
                right[c * k() + i] = element(b, block + c / columns(), describes_b, c % columns(), i) * scale(of_b, c, descriptor.field(4, 2), i);
        for (int row = 0; row < descriptor.m(); row++) {
            const int holder = block + row / rows();
            std::vector<double> left(k());
            for (int i = 0; i < k(); i++)
                left[i] = element(a, holder, describes_a, row % rows(), i) * scale(of_a, row, descriptor.field(29, 2), i);
            for (int c = 0; c < n; c++) {
                double sum = 0;
                for (int i = 0; i < k(); i++) sum += left[i] * right[c * k() + i];
                u32 &word = tensor_word(holder, row % rows(), d + c);
                if (!accumulate) word = 0;
                add(kind == "i8" ? "s32" : "f32", Ref{&word, 4}, 0, sum);
            }
        }
        for (Word *w : words) end_access(*w, READ, done);
        for (int one = 0; one < blocks(); one++) tensor[block + one].multiplied = done;
    }
};
inline void refuse_descriptor(const TensorProduct &p) {
    const InstructionDescriptor &i = p.descriptor;
    if (i.m() != 128 * p.blocks()) fail("m of a product that is not 128 of each block");
    if (!i.n() || i.n() > 256 || i.n() % 16) fail("n of a product");
    if (i.field(2, 2) || i.field(13, 4)) fail("sparsity, signs or transposition");
    if (!p.scales && (i.field(4, 2) != (p.kind == "i8" ? 2 : 1) || i.field(23, 1) || i.bits >> 29)) fail("D's type, or what belongs to scales");
    if (p.kind == "mxf8f6f4" && (p.scales != 1 || !i.field(23, 1))) fail("scales of mxf8f6f4");
    if (p.kind == "mxf4" && (p.scales != 2 || !i.field(23, 1) || i.field(4, 1) || i.field(29, 1))) fail("scales of mxf4");
    if (p.scales == 4 && (p.kind != "mxf4nvf4" || i.field(23, 1) || i.field(4, 2) || i.field(29, 2))) fail("scales of mxf4nvf4");
    for (u64 one : {p.describes_a, p.describes_b})
        if ((one >> 46 & 7) != 1) fail("bits 46 to 48 of a shared memory descriptor of tcgen05 are 1");
}
inline void issue_tcgen05(const Instruction &i, Frame &f) {
    auto l = lists(i);
    auto parts = dots(i.name);
    auto p = std::make_shared<TensorProduct>();
    p->pair = paired(i);
    p->kind = parts[3].substr(parts[3].find("::") + 2);
    p->scales = parts.size() > 5 ? parts[5].back() == 'X' ? parts[5][parts[5].size() - 2] - '0' : 0 : 0;
    p->block = now->block;
    if (p->pair && now->block % 2) fail("the second block of a pair issues a product");
    auto v = [&](int list) { return f.value(l.at(list).at(0)); };
    p->d = u32(v(0)), p->describes_a = v(1), p->describes_b = v(2), p->descriptor.bits = u32(v(3));
    if (p->scales) p->of_a = u32(v(4)), p->of_b = u32(v(5));
    p->accumulate = v(p->scales ? 6 : 4);
    p->a = element_type(p->kind, p->descriptor.field(7, 3)), p->b = element_type(p->kind, p->descriptor.field(10, 3));
    refuse_descriptor(*p);
    for (int one = 0; one < p->blocks(); one++) {
        TensorMemory &t = tensor[p->block + one];
        if (t.unfenced) fail("unordered: a product reads tensor memory whose stores are not waited for and fenced");
        for (Event e : t.stored)
            if (!now->tensor_seen.knows(e)) fail("unordered: a product reads tensor memory that another thread stores");
        for (auto [describes, rows] : {std::pair{p->describes_a, p->rows()}, std::pair{p->describes_b, p->columns()}})
            for (int row = 0; row < rows; row++)
                for (int byte = 0; byte < 32; byte += 4) p->words.push_back(word_at(described(p->block + one, describes, row, byte)));
    }
    for (Word *w : p->words) begin_access(*w, READ, now->fenced);
    uncommitted.push_back([p](Event done) { p->perform(done); });
}
inline void commit_tcgen05(u32 address) {
    if (!now->fenced.knows(barrier(address).made)) fail("unordered: a commit uses a barrier that no proxy fence has made known");
    commits.push_back({address, std::move(uncommitted)});
    uncommitted.clear();
}
// A product is done when somebody waits for its commit, not before; those of earlier commits are then done too.
inline void finish_commits(u32 address) {
    if (std::none_of(commits.begin(), commits.end(), [&](const Commit &c) { return c.barrier == address; })) return;
    for (bool found = false; !found; commits.pop_front()) {
        Barrier &b = barriers.at(commits.front().barrier);
        const Event done = b.next();
        for (auto &one : commits.front().products) one(done);
        b.pending--;
        settle(b);
        found = commits.front().barrier == address;
    }
}
inline void refuse_unfreed() {
    for (int block = 0; block < cluster_size && failure.empty(); block++)
        if (tensor[block].allocated) failure = "tensor memory is not given back";
}
} // namespace gpu
