// Threads of a cluster as fibers, barriers, numbers as tensor cores hold them, and PTX taken to pieces.
#pragma once
#include "emulated_clocks.hpp"
#include "emulated_gpu.hpp"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <ucontext.h>
#include <unordered_map>

namespace gpu {
constexpr int WINDOW = 256 * 1024, MOST = 16; // bytes of a block's shared memory; blocks of a cluster
constexpr size_t STACK = 128 * 1024;
alignas(1024) inline u8 arena[MOST][WINDOW]; // blocks of a cluster lie one behind the other
inline u32 shared_address(const void *p) { return u32(uintptr_t(p) - uintptr_t(arena[0])); }
inline u8 *at_shared(u32 address) { return arena[0] + int32_t(address); }

// --- threads ---

// Asynchronous operations of a thread: those not yet committed, and groups of committed ones (PTX ISA, async-group mechanism).
template <class Operation> struct Groups {
    std::vector<Operation> open;
    std::deque<std::vector<Operation>> committed;
    void commit() {
        committed.push_back(std::move(open));
        open.clear();
    }
    template <class Work> void wait(size_t most, Work complete) {
        for (; committed.size() > most; committed.pop_front())
            for (auto &one : committed.front()) complete(one);
    }
};
struct Copy {
    u8 *to;
    const u8 *from;
    u32 size;
    u32 barrier = 0;
    std::vector<u8> data{}; // of a store from shared memory: what was read
    bool was_read = false;
};
struct Product;
// A register that wgmma may use: when the thread itself touched it last, when and as what wgmma did, and how many products hold it.
struct Register {
    u64 touched = 0, used = 0, hidden = 0;
    std::string use;
    int held = 0;
};
struct Thread {
    ucontext_t context;
    std::unique_ptr<u8[]> stack;
    bool done = false;
    int block = 0, rank = 0, agent = 0;
    uint3 thread{}, grid_place{};
    // `seen`: what happens before this thread's next step. `fenced`: what does so with a generic-async proxy fence on the way.
    Clock seen, fenced;
    u32 time = 0;
    u64 cluster_round = 0;
    bool cluster_arrived = false;
    Groups<Copy> copies, bulk_stores;
    Clock tensor_seen; // what happens before accesses to tensor memory: known at the last tcgen05.fence::after_thread_sync
    int tensor_stores = 0; // not yet waited for and fenced
    bool tensor_waited = false;
    std::vector<const void *> maps; // tensor maps that this thread may use
    Event bulk_done; // of the unit that does this thread's bulk stores
    Groups<std::shared_ptr<Product>> products;
    std::unordered_map<uintptr_t, Register> registers;
    u64 moment = 0, ordered = 0; // of accesses to registers; of the last wgmma.fence

    void tick() { seen.learn(Event{agent, ++time}); }
    Event event() const { return {agent, time}; }
};
inline std::vector<Thread> threads;
inline Thread *now;
inline ucontext_t home;
inline std::string failure;
inline bool progress;
inline int cluster_size, block_threads, agents;

[[noreturn]] inline void fail(const std::string &why) {
    failure = why + " (thread " + std::to_string(now->rank) + " of block " + std::to_string(now->block) + ")";
    swapcontext(&now->context, &home);
    abort();
}
inline void yield() { swapcontext(&now->context, &home); }

// --- meetings, which order nothing ---

struct Meeting {
    std::vector<void *> given;
    size_t arrived = 0;
    u64 round = 0;
};
inline std::map<std::string, Meeting> meetings;
// All `count` members come together; the last to come does the work, then all go on.
inline void meet(const std::string &where, size_t count, size_t rank, void *given, const std::function<void(std::vector<void *> &)> &work) {
    Meeting &m = meetings[where];
    m.given.resize(count);
    m.given[rank] = given;
    progress = true;
    if (++m.arrived == count) {
        work(m.given);
        m.arrived = 0;
        m.round++;
        return;
    }
    for (u64 round = m.round; m.round == round;) yield();
}
inline void together(int span, void *given, const std::function<void(std::vector<void *> &)> &work) {
    const int group = now->rank / span, size = std::min(span, block_threads - group * span);
    const std::string name = (span == 32 ? "warp" : "group") + std::to_string(now->block) + "." + std::to_string(group);
    meet(name, size, now->rank % span, given, work);
}

// --- barriers, which order what stands before them in any thread before what stands behind them in any ---
// PTX ISA, Memory synchronization: bar.sync with bar.sync, barrier.cluster.arrive with barrier.cluster.wait.

struct Rendezvous {
    size_t arrived = 0;
    u64 round = 0;
    Gathered seen, fenced;
    Clock all_seen, all_fenced;
};
inline std::map<int, Rendezvous> rendezvous; // by block; CLUSTER for that of all
constexpr int CLUSTER = -1;
inline void arrive(Rendezvous &r, size_t count) {
    r.seen.add(now->seen);
    r.fenced.add(now->fenced);
    progress = true;
    if (++r.arrived == count) {
        r.all_seen = r.seen.taken();
        r.all_fenced = r.fenced.taken();
        r.arrived = 0;
        r.round++;
    }
}
inline void leave(const Rendezvous &r) {
    now->seen = r.all_seen;
    now->fenced = r.all_fenced;
    now->tick();
}
inline void block_barrier() {
    Rendezvous &r = rendezvous[now->block];
    const u64 round = r.round;
    arrive(r, block_threads);
    while (r.round == round) yield();
    leave(r);
}
inline void cluster_arrive() {
    Rendezvous &r = rendezvous[CLUSTER];
    if (now->cluster_arrived) fail("a thread arrives twice at the cluster's barrier");
    now->cluster_arrived = true;
    now->cluster_round = r.round;
    arrive(r, threads.size());
    now->tick(); // what follows is no part of what the others wait for
}
inline void cluster_wait() {
    Rendezvous &r = rendezvous[CLUSTER];
    if (!now->cluster_arrived) fail("a thread waits at the cluster's barrier at which it has not arrived");
    while (r.round == now->cluster_round) yield();
    now->cluster_arrived = false;
    const Clock seen = now->seen, fenced = now->fenced; // what was learned since the arrival
    leave(r);
    now->seen.learn(seen);
    now->fenced.learn(fenced);
}

// --- numbers ---

inline double small_float(u32 code, int exponent_bits, int fraction_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1, e = code >> fraction_bits & ((1 << exponent_bits) - 1);
    const double f = code & ((1u << fraction_bits) - 1), scale = std::ldexp(1.0, -fraction_bits);
    const double size = e ? std::ldexp(1 + f * scale, e - bias) : std::ldexp(f * scale, 1 - bias);
    return code >> (exponent_bits + fraction_bits) & 1 ? -size : size;
}
inline int bits_of(const std::string &type) {
    static const std::map<std::string, int> known = {{"f16", 16}, {"bf16", 16}, {"tf32", 32}, {"e4m3", 8},
                                                     {"e5m2", 8}, {"s8", 8},    {"f64", 64}};
    return known.at(type);
}
inline double number(const std::string &type, u64 code) {
    if (type == "f64") {
        double d;
        memcpy(&d, &code, 8);
        return d;
    }
    if (type == "tf32") {
        u32 kept = u32(code) & 0xffffe000;
        float f;
        memcpy(&f, &kept, 4);
        return f;
    }
    if (type == "bf16") {
        u32 wide = u32(code) << 16;
        float f;
        memcpy(&f, &wide, 4);
        return f;
    }
    if (type == "s8") return int8_t(code);
    return type == "f16" ? small_float(code, 5, 10) : type == "e4m3" ? small_float(code, 4, 3) : small_float(code, 5, 2);
}
inline u16 half(double value) {
    _Float16 h = (_Float16)value;
    u16 code;
    memcpy(&code, &h, 2);
    return code;
}

// --- operands of an asm statement ---

struct Instruction {
    std::string name;
    std::vector<std::string> words;
}; // words: operands with braces and brackets kept apart
typedef std::vector<Instruction> Program;
inline Program parsed(std::string text) {
    Program program;
    std::string one;
    for (char &c : text)
        if (c == '{' && text[0] == '{' && &c == &text[0]) c = ' ';
    if (text.find_last_not_of(" ") != std::string::npos && text[text.find_last_not_of(" ")] == '}' && text.find(';') < text.rfind('}') &&
        text.rfind(';') < text.rfind('}'))
        text[text.rfind('}')] = ' ';
    for (char c : text)
        if (c != ';') one += c;
        else {
            Instruction i;
            std::string word;
            size_t at = one.find_first_not_of(" "), end = one.find(' ', at);
            if (at == std::string::npos) {
                one.clear();
                continue;
            }
            i.name = one.substr(at, end == std::string::npos ? end : end - at);
            for (char d : end == std::string::npos ? "" : one.substr(end)) {
                if (strchr(" ,", d)) {
                    if (!word.empty()) i.words.push_back(word);
                    word.clear();
                } else if (strchr("{}[]|", d)) {
                    if (!word.empty()) i.words.push_back(word);
                    word.clear();
                    if (d != '|') i.words.push_back(std::string(1, d));
                } else if (d) word += d;
            }
            if (!word.empty()) i.words.push_back(word);
            program.push_back(i);
            one.clear();
        }
    return program;
}
struct Frame {
    std::vector<Ref> refs;
    std::map<std::string, u64> locals;
    u64 value(const std::string &w) const {
        const size_t plus = w.find('+');
        if (plus != std::string::npos) return value(w.substr(0, plus)) + value(w.substr(plus + 1));
        if (w[0] == '%') return refs.at(std::stoi(w.substr(1))).get();
        if (isdigit(w[0])) return std::stoull(w, nullptr, 0);
        return locals.at(w);
    }
    void set(const std::string &w, u64 v) {
        if (w[0] == '%') refs.at(std::stoi(w.substr(1))).set(v);
        else locals[w] = v;
    }
};
// Operands without brackets; each {…} or […] is one list.
inline std::vector<std::vector<std::string>> lists(const Instruction &i) {
    std::vector<std::vector<std::string>> found;
    bool within = false;
    for (auto &w : i.words) {
        if (w == "{" || w == "[") {
            found.emplace_back();
            within = true;
        } else if (w == "}" || w == "]") within = false;
        else if (within) found.back().push_back(w);
        else found.push_back({w});
    }
    return found;
}
inline std::vector<std::string> dots(const std::string &name) {
    std::vector<std::string> parts(1);
    for (char c : name)
        if (c == '.') parts.emplace_back();
        else parts.back() += c;
    return parts;
}
} // namespace gpu
