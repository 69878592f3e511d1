// Who may touch what when: shared memory in two proxies, and registers that wgmma uses. What may still be under way is under way.
//
// The kernel's own accesses are known because its source is compiled with -fsanitize=thread: g++ then calls `__tsan_…` before each of
// them, and these functions are here. Global memory is not followed: no kernel passes anything from block to block through it.
#pragma once
#include "emulated_threads.hpp"

extern "C" { // bounds of the section that `__shared__` names, by the linker
extern gpu::u8 __start_shared_memory[] __attribute__((weak, visibility("hidden")));
extern gpu::u8 __stop_shared_memory[] __attribute__((weak, visibility("hidden")));
}

namespace gpu {
// --- shared memory ---

// Four bytes: who wrote them last and who has read or atomically added to them since; asynchronous operations that are at it.
struct Word {
    Event written;
    std::vector<Event> read, added;
    u16 reading = 0, writing = 0;
};
enum Access { READ, WRITE, ADD };
inline std::vector<Word> words, static_words;
inline size_t static_size() { return size_t(__stop_shared_memory - __start_shared_memory); }
inline void forget_accesses() {
    words.assign(size_t(cluster_size) * WINDOW / 4, {});
    static_words.assign((static_size() + 3) / 4, {});
}
inline Word *word_at(const void *p) {
    const size_t at = size_t((const u8 *)p - arena[0]) / 4, at_static = size_t((const u8 *)p - __start_shared_memory) / 4;
    return at < words.size() ? &words[at] : at_static < static_words.size() ? &static_words[at_static] : nullptr;
}
template <class Work> inline void each_word(const void *p, size_t size, Work work) {
    Word *const first = word_at(p);
    if (first)
        for (size_t n = 0; n < (uintptr_t(p) % 4 + size + 3) / 4; n++) work(first[n]);
}
inline void note(std::vector<Event> &list, Event e) {
    if (!list.empty() && list.back().agent == e.agent) list.back() = e;
    else list.push_back(e);
}
// PTX ISA, Conflict and Data-races: of two accesses of which one writes, one must precede the other in causality order. Relaxed atomic
// operations of one scope and proxy do not race with each other.
inline void expect_order(const Word &w, Access kind, const Clock &clock, const char *who) {
    const bool in_order = clock.knows(w.written) &&
                          (kind == ADD || std::all_of(w.added.begin(), w.added.end(), [&](Event e) { return clock.knows(e); })) &&
                          (kind == READ || std::all_of(w.read.begin(), w.read.end(), [&](Event e) { return clock.knows(e); }));
    if (!in_order) fail(std::string("unordered: ") + who + (kind == READ ? " reads" : " writes") + " shared memory that another accessed");
    if (kind != WRITE && !w.written.time) fail(std::string("unordered: ") + who + " reads shared memory that nobody wrote");
}
inline void set_accessed(Word &w, Access kind, Event e) {
    if (kind == READ) return note(w.read, e);
    if (kind == ADD) return note(w.added, e);
    w.written = e;
    w.read.clear();
    w.added.clear();
}

// Shared memory of another block is there as long as that block (CUDA C++ Programming Guide, Distributed Shared Memory): each agent's
// last access from outside must precede the block's end.
struct Block {
    int running = 0;
    std::map<int, u32> guests;
};
inline std::vector<Block> blocks;
inline void visit(const void *p) {
    const size_t block = size_t((const u8 *)p - arena[0]) / WINDOW;
    if (block >= blocks.size() || int(block) == now->block) return;
    if (!blocks[block].running) fail("unordered: a thread accesses shared memory of a block that has ended");
    blocks[block].guests[now->agent] = now->time;
}
inline void end_thread() {
    Block &b = blocks[now->block];
    if (--b.running) return;
    for (auto &[agent, time] : b.guests) {
        const bool known = std::any_of(threads.begin(), threads.end(),
                                       [&](Thread &t) { return t.block == now->block && t.seen.knows(Event{agent, time}); });
        if (!known) fail("unordered: a block ends while another may still access its shared memory");
    }
}

// The running thread accesses shared memory by the generic proxy.
inline void access(const void *p, size_t size, Access kind) {
    if (!word_at(p)) return;
    visit(p);
    each_word(p, size, [&](Word &w) {
        if (w.writing || (kind != READ && w.reading))
            fail(std::string("unordered: a thread ") + (kind == READ ? "reads" : "writes") +
                 " shared memory at which an asynchronous operation still is");
        expect_order(w, kind, now->seen, "a thread");
        set_accessed(w, kind, now->event());
    });
}
// An asynchronous operation takes hold of words of shared memory, and lets go of them. `clock` is what happens before it: of the async
// proxy only what a proxy fence lies behind (PTX ISA, Async Proxy, and Causality Order on where the fence may stand).
inline void begin_access(Word &w, Access kind, const Clock &clock) {
    if (w.writing || (kind == WRITE && w.reading)) fail("unordered: an asynchronous operation begins where another still is");
    expect_order(w, kind, clock, "an asynchronous operation");
    ++(kind == READ ? w.reading : w.writing);
}
inline void end_access(Word &w, Access kind, Event done) {
    --(kind == READ ? w.reading : w.writing);
    set_accessed(w, kind, done);
}
// fence.proxy.async works within a thread, in both directions, and goes on with the thread's other synchronization (PTX ISA, fence).
inline void fence_proxy() {
    now->fenced = now->seen;
    now->tick();
}
// What has completed an asynchronous operation is seen by who waits for it, in both proxies: an implicit generic-async proxy fence
// follows the completion (PTX ISA, Async Proxy).
inline void learn_completion(Event done) {
    now->seen.learn(done);
    now->fenced.learn(done);
}

// --- registers ---

// PTX ISA, wgmma.wait_group: accumulators, and registers with fragments of A, must not be accessed before their group is waited for.
inline void touch(const void *p, size_t size) {
    const uintptr_t at = uintptr_t(p), low = uintptr_t(now->stack.get());
    if (at < low || at >= low + STACK) return;
    for (uintptr_t place = at & ~uintptr_t(3); place < at + size; place += 4) {
        Register &r = now->registers[place];
        if (r.held) fail("unordered: a thread accesses a register that wgmma still holds");
        r.touched = ++now->moment;
    }
}
inline void watch(const void *p, size_t size, Access kind) {
    if (!now) return;
    access(p, size, kind);
    touch(p, size);
}
} // namespace gpu

#define WATCHED(size)                                                                                                                     \
    void __tsan_read##size(void *p) { gpu::watch(p, size, gpu::READ); }                                                                   \
    void __tsan_write##size(void *p) { gpu::watch(p, size, gpu::WRITE); }                                                                 \
    void __tsan_unaligned_read##size(void *p) { gpu::watch(p, size, gpu::READ); }                                                         \
    void __tsan_unaligned_write##size(void *p) { gpu::watch(p, size, gpu::WRITE); }
extern "C" {
WATCHED(1)
WATCHED(2)
WATCHED(4)
WATCHED(8)
WATCHED(16)
void __tsan_read_range(void *p, size_t size) { gpu::watch(p, size, gpu::READ); }
void __tsan_write_range(void *p, size_t size) { gpu::watch(p, size, gpu::WRITE); }
void __tsan_init() {}
}
