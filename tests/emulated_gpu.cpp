// CUDA on a CPU: each thread of a cluster of blocks is a fiber, and PTX in `asm` is interpreted as its documentation says.
//
// What is modelled: fragments of mma and wgmma, shared memory behind wgmma's descriptors, sparsity, mbarriers, asynchronous copies (which
// arrive as late as they may), barriers of blocks and clusters. Nothing here is taken from the kernels. Time stands still.
#include "emulated_products.hpp"

namespace gpu {
uint3 thread_place, block_place, block_size, grid_size;
void all_threads() { block_barrier(); }
u32 shared_of(const void *p) { return shared_address(p); }

// --- memory ---

struct Barrier {
    u32 count = 0, pending = 0;
    int64_t bytes = 0;
    u64 phase = 0;
};
inline std::map<u32, Barrier> barriers;
inline Barrier &barrier(u32 address) {
    auto found = barriers.find(address);
    if (found == barriers.end()) fail("a barrier that nobody made");
    return found->second;
}
inline void settle(Barrier &b) {
    if (b.pending == 0 && b.bytes == 0) {
        b.phase++;
        b.pending = b.count;
        idle = 0;
    }
}
inline bool passed(u32 address, u32 parity) {
    Barrier &b = barrier(address);
    if ((b.phase & 1) != parity) return true;
    for (size_t n = 0; n < flying.size(); n++)
        if (flying[n].barrier == address) { // a copy lands when somebody waits for it, not before
            const Copy c = flying[n];
            flying.erase(flying.begin() + n);
            memcpy(c.to, c.from, c.size);
            b.bytes -= c.size;
            settle(b);
            break;
        }
    return (b.phase & 1) != parity;
}
inline void refuse_crooked(u64 to, u64 from, u64 size) {
    if ((to | from | size) % 16) fail("a bulk copy that is not aligned to 16 bytes");
}
inline void land(std::deque<std::vector<Copy>> &groups, size_t most) {
    for (; groups.size() > most; groups.pop_front())
        for (auto &c : groups.front()) memcpy(c.to, c.from, c.size);
}
inline void load(const Instruction &i, Frame &f) {
    auto parts = dots(i.name);
    auto words = lists(i);
    const std::string &type = parts.back();
    const int size = std::stoi(type.substr(1)) / 8;
    u64 at = f.value(words[1][0]);
    const u8 *from = parts[1] == "shared" ? at_shared(u32(at)) : (const u8 *)at;
    if (uintptr_t(from) % (size * words[0].size())) fail("a load that is not aligned");
    for (size_t n = 0; n < words[0].size(); n++) {
        u64 v = 0;
        memcpy(&v, from + n * size, size);
        f.set(words[0][n], v);
    }
}
inline u64 special(const std::string &w) {
    static u64 ticks = 0;
    if (w == "%%cluster_ctarank") return now->block;
    if (w == "%%cluster_nctarank") return cluster_size;
    return ++ticks;
}
inline bool starts(const std::string &s, const char *with) { return s.rfind(with, 0) == 0; }
inline void run_one(const Instruction &i, Frame &f) {
    const std::string &n = i.name;
    auto l = lists(i);
    auto v = [&](int list, int word = 0) { return f.value(l.at(list).at(word)); };
    if (n == ".reg" || starts(n, "fence.") || n == "wgmma.fence.sync.aligned" || n == "wgmma.commit_group.sync.aligned" ||
        n == "wgmma.wait_group.sync.aligned")
        return;
    if (starts(n, "mov.")) return f.set(l[0][0], starts(l[1][0], "%%") ? special(l[1][0]) : v(1));
    if (n == "cvt.f32.f16") {
        float wide = float(small_float(u32(v(1)), 5, 10));
        u32 code;
        memcpy(&code, &wide, 4);
        return f.set(l[0][0], code);
    }
    if (n == "setp.eq.u32") return f.set(l[0][0], v(1) == v(2));
    if (n == "setp.ne.u32") return f.set(l[0][0], v(1) != v(2));
    if (n == "selp.u32") return f.set(l[0][0], v(3) ? v(1) : v(2));
    if (starts(n, "mma.")) return mma(i, f);
    if (starts(n, "wgmma.mma_async.")) return wgmma(i, f);
    if (starts(n, "ld.")) return load(i, f);
    if (n == "barrier.cluster.arrive.aligned") return;
    if (n == "barrier.cluster.wait.aligned") return cluster_barrier();
    if (starts(n, "mapa.")) return f.set(l[0][0], v(1) + (int64_t(v(2)) - now->block) * WINDOW);
    if (n == "red.shared.add.u32" || n == "red.shared::cluster.add.u32") {
        *(u32 *)at_shared(u32(v(0))) += u32(v(1));
        return;
    }
    if (n == "mbarrier.init.shared::cta.b64") {
        barriers[u32(v(0))] = {u32(v(1)), u32(v(1)), 0, 0};
        return;
    }
    if (n == "mbarrier.arrive.expect_tx.shared::cta.b64") {
        Barrier &b = barrier(u32(v(1)));
        b.bytes += v(2);
        b.pending--;
        return settle(b);
    }
    if (n == "mbarrier.try_wait.parity.shared::cta.b64") return f.set(l[0][0], passed(u32(v(1)), u32(v(2))));
    if (n == "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes") {
        refuse_crooked(v(0), v(1), v(2));
        flying.push_back({at_shared(u32(v(0))), (const u8 *)v(1), u32(v(2)), u32(v(3))});
        return;
    }
    if (n == "cp.async.bulk.global.shared::cta.bulk_group") {
        refuse_crooked(v(0), v(1), v(2));
        now->bulk_open.push_back({(u8 *)v(0), at_shared(u32(v(1))), u32(v(2)), 0});
        return;
    }
    if (n == "cp.async.bulk.commit_group") {
        now->bulk_groups.push_back(std::move(now->bulk_open));
        now->bulk_open.clear();
        return;
    }
    if (n == "cp.async.bulk.wait_group" || n == "cp.async.bulk.wait_group.read") return land(now->bulk_groups, v(0));
    if (n == "cp.async.ca.shared.global") {
        now->open.push_back({at_shared(u32(v(0))), (const u8 *)v(1), u32(v(2)), 0});
        return;
    }
    if (n == "cp.async.commit_group") {
        now->groups.push_back(std::move(now->open));
        now->open.clear();
        return;
    }
    if (n == "cp.async.wait_group") return land(now->groups, v(0));
    fail("not modelled: " + n);
}
void assembly(int &program, const char *text, const Ref *refs, int count) {
    static std::deque<Program> programs;
    if (!program) {
        programs.push_back(parsed(text));
        program = int(programs.size());
    }
    Frame f{{refs, refs + count}, {}};
    for (auto &i : programs[program - 1]) run_one(i, f);
}
u64 shuffled(u64 value, int lane) {
    together(32, &value, [&](std::vector<void *> &all) {
        const u64 seen = *(u64 *)all[lane % all.size()];
        for (auto p : all) *(u64 *)p = seen;
    });
    return value;
}
void *dynamic() { return arena[now->block] + 1024; }

// --- a launch ---

typedef void (*Entry)(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);
inline Entry entry;
inline u64 *arguments;
inline void body() {
    auto a = arguments;
    entry(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    now->done = true;
    idle = 0;
    swapcontext(&now->context, &home);
}
inline void start(Thread &t, int block, int rank, uint3 place) {
    t.block = block;
    t.rank = rank;
    t.grid_place = place;
    t.thread = {unsigned(rank) % block_size.x, unsigned(rank) / block_size.x % block_size.y, unsigned(rank) / block_size.x / block_size.y};
    t.stack.reset(new u8[128 * 1024]);
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.get();
    t.context.uc_stack.ss_size = 128 * 1024;
    t.context.uc_link = &home;
    makecontext(&t.context, body, 0);
}
inline void run_cluster(u64 first) {
    threads.clear();
    threads.resize(cluster_size * block_threads);
    meetings.clear();
    barriers.clear();
    flying.clear();
    memset(arena, 0xA5, sizeof arena);
    for (int b = 0; b < cluster_size; b++) {
        const u64 n = first + b;
        const uint3 place = {unsigned(n % grid_size.x), unsigned(n / grid_size.x % grid_size.y), unsigned(n / grid_size.x / grid_size.y)};
        for (int r = 0; r < block_threads; r++) start(threads[b * block_threads + r], b, r, place);
    }
    for (bool some = true; some;) {
        some = false;
        for (auto &t : threads)
            if (!t.done) {
                some = true;
                now = &t;
                thread_place = t.thread;
                block_place = t.grid_place;
                swapcontext(&home, &t.context);
            }
    }
}
} // namespace gpu

extern "C" void launch(void *function, const unsigned *grid, const unsigned *block, int cluster, uint64_t *given) {
    gpu::entry = gpu::Entry(function);
    gpu::arguments = given;
    gpu::cluster_size = cluster;
    gpu::grid_size = {grid[0], grid[1], grid[2]};
    gpu::block_size = {block[0], block[1], block[2]};
    gpu::block_threads = block[0] * block[1] * block[2];
    for (uint64_t first = 0; first < uint64_t(grid[0]) * grid[1] * grid[2]; first += cluster) gpu::run_cluster(first);
}
