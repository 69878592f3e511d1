// CUDA on a CPU: each thread of a cluster of blocks is a fiber, and PTX in `asm` is interpreted as its documentation says.
//
// What is modelled: arithmetic, fragments of mma and wgmma, shared memory behind descriptors, sparsity, tensor memory with block scales,
// mbarriers, asynchronous copies, tensor maps and products (done as late as they may be), barriers of blocks and clusters, and the order
// that all these establish: a kernel that relies on more than the PTX ISA promises fails, with what was "unordered". Nothing here is taken
// from the kernels. Time stands still.
#include "emulated_arithmetic.hpp"
#include "emulated_copies.hpp"
#include "emulated_tcgen05.hpp"
#include "emulated_wgmma.hpp"

namespace gpu {
uint3 thread_place, block_place, block_size, grid_size;
void all_threads() { block_barrier(); }
u32 shared_of(const void *p) { return shared_address(p); }
inline int left_out = -1;
bool kept(int statement) { return statement != left_out; }

inline void load(const Instruction &i, Frame &f) {
    auto parts = dots(i.name);
    auto words = lists(i);
    const std::string &type = parts.back();
    const int size = std::stoi(type.substr(1)) / 8;
    u64 at = f.value(words[1][0]);
    const u8 *from = parts[1] == "shared" ? at_shared(u32(at)) : (const u8 *)at;
    if (uintptr_t(from) % (size * words[0].size())) fail("a load that is not aligned");
    access(from, size * words[0].size(), READ);
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
inline void touch_operands(const Instruction &i, const Frame &f) {
    for (auto &w : i.words)
        if (w[0] == '%' && isdigit(w[1])) {
            const Ref &ref = reference(f, w);
            touch(ref.place ? ref.place : ref.home, ref.size);
        }
}
inline void run_one(const Instruction &i, Frame &f) {
    const std::string &n = i.name;
    auto l = lists(i);
    auto v = [&](int list, int word = 0) { return f.value(l.at(list).at(word)); };
    if (starts(n, "wgmma.mma_async.")) return issue_wgmma(i, f); // with rules of its own for registers
    touch_operands(i, f);
    if (n == ".reg") return;
    if (n == "fence.proxy.async") return fence_proxy();
    if (n == "wgmma.fence.sync.aligned") return fence_wgmma();
    if (n == "wgmma.commit_group.sync.aligned") return now->products.commit();
    if (n == "wgmma.wait_group.sync.aligned") return wait_wgmma(v(0));
    if (starts(n, "mov.")) return f.set(l[0][0], starts(l[1][0], "%%") ? special(l[1][0]) : v(1));
    if (n == "cvt.f32.f16") {
        float wide = float(small_float(u32(v(1)), 5, 10));
        u32 code;
        memcpy(&code, &wide, 4);
        return f.set(l[0][0], code);
    }
    const bool three = l.size() == 4;
    if (u64 found; (three || l.size() == 2) && arithmetic(n, v(1), three ? v(2) : 0, three ? v(3) : 0, found)) return f.set(l[0][0], found);
    if (n == "setp.eq.u32") return f.set(l[0][0], v(1) == v(2));
    if (n == "setp.ne.u32") return f.set(l[0][0], v(1) != v(2));
    if (n == "selp.u32") return f.set(l[0][0], v(3) ? v(1) : v(2));
    if (starts(n, "mma.")) return mma(i, f);
    if (n == "elect.sync") return f.set(l[1][0], now->rank % 32 == 0);
    if (n == "fence.proxy.async.shared::cta") return fence_proxy();
    if (n == "fence.mbarrier_init.release.cluster") return; // more than it needs stands in each kernel: a fence of all proxies and a barrier
    if (starts(n, "tcgen05.alloc.")) return allocate_tensor(u32(v(0)), v(1));
    if (starts(n, "tcgen05.relinquish_alloc_permit.")) return;
    if (starts(n, "tcgen05.dealloc.")) return free_tensor(v(0), v(1), paired(i));
    if (n == "tcgen05.fence::before_thread_sync") return fence_before_sync();
    if (n == "tcgen05.fence::after_thread_sync") return fence_after_sync();
    if (starts(n, "tcgen05.mma.")) return issue_tcgen05(i, f);
    if (starts(n, "tcgen05.commit.")) return commit_tcgen05(u32(v(0)));
    if (n == "tcgen05.st.sync.aligned.32x32b.x1.b32") return store_tensor(v(0), v(1));
    if (n == "tcgen05.wait::st.sync.aligned") return wait_for_stores();
    if (n == "tcgen05.ld.sync.aligned.32x32b.x1.b32") return f.set(l[0][0], load_tensor_word(v(1)));
    if (n == "tcgen05.wait::ld.sync.aligned") return;
    if (starts(n, "ld.")) return load(i, f);
    if (n == "atom.global.or.b64") {
        u64 *const at = (u64 *)v(1);
        f.set(l[0][0], *at);
        *at |= v(2);
        return;
    }
    if (n == "barrier.cluster.arrive.aligned") return cluster_arrive();
    if (n == "barrier.cluster.wait.aligned") return cluster_wait();
    if (starts(n, "mapa.")) return f.set(l[0][0], v(1) + (int64_t(v(2)) - now->block) * WINDOW);
    if (n == "red.shared.add.u32" || n == "red.shared::cluster.add.u32") {
        u8 *const at = at_shared(u32(v(0)));
        access(at, 4, ADD);
        *(u32 *)at += u32(v(1));
        return;
    }
    if (n == "mbarrier.init.shared::cta.b64") return make_barrier(u32(v(0)), u32(v(1)));
    if (n == "mbarrier.arrive.expect_tx.shared::cta.b64") return arrive_expecting(u32(v(1)), u32(v(2)));
    if (n == "mbarrier.arrive.release.cluster.shared::cluster.b64") return arrive_at(u32(v(1)));
    if (n == "mbarrier.try_wait.parity.shared::cta.b64" || n == "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64")
        return f.set(l[0][0], passed(u32(v(1)), u32(v(2))));
    if (n == "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes")
        return load_bulk(u32(v(0)), (const u8 *)v(1), u32(v(2)), u32(v(3)));
    if (n == "fence.proxy.tensormap::generic.acquire.sys") return acquire_map((const void *)v(0));
    if (starts(n, "cp.async.bulk.tensor.")) {
        std::vector<int> at;
        for (auto &w : l[2]) at.push_back(int(f.value(w)));
        const bool all = n.find(".multicast::cluster") != std::string::npos;
        return load_tensor(u32(v(0)), *(const TensorMap *)v(1), at, u32(v(3)), all ? u32(v(4)) : 1u << now->block);
    }
    if (n == "cp.async.bulk.global.shared::cta.bulk_group") return store_bulk((u8 *)v(0), u32(v(1)), u32(v(2)));
    if (n == "cp.async.bulk.commit_group") return now->bulk_stores.commit();
    if (n == "cp.async.bulk.wait_group") return now->bulk_stores.wait(v(0), write_result);
    if (n == "cp.async.bulk.wait_group.read") return wait_for_reads(v(0));
    if (n == "cp.async.ca.shared.global") return begin_copy(u32(v(0)), (const u8 *)v(1), u32(v(2)));
    if (n == "cp.async.commit_group") return now->copies.commit();
    if (n == "cp.async.wait_group") return now->copies.wait(v(0), end_copy);
    fail("not modelled: " + n);
}
void run_assembly(int &program, const char *text, const Ref *refs, int count) {
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
    end_stores();
    end_thread();
    now->done = true;
    progress = true;
    yield();
}
inline void start(Thread &t, int block, int rank, uint3 place) {
    t.block = block;
    t.rank = rank;
    t.agent = block * block_threads + rank;
    t.tick();
    t.grid_place = place;
    t.thread = {unsigned(rank) % block_size.x, unsigned(rank) / block_size.x % block_size.y, unsigned(rank) / block_size.x / block_size.y};
    t.stack.reset(new u8[STACK]);
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = t.stack.get();
    t.context.uc_stack.ss_size = STACK;
    t.context.uc_link = &home;
    makecontext(&t.context, body, 0);
}
inline void forget_cluster() {
    threads.clear();
    threads.resize(cluster_size * block_threads);
    agents = int(threads.size());
    meetings.clear();
    rendezvous.clear();
    barriers.clear();
    flying.clear();
    forget_tensors();
    warp_groups.clear();
    blocks.assign(cluster_size, {block_threads, {}});
    forget_accesses();
    memset(arena, 0xA5, size_t(cluster_size) * WINDOW);
    memset(__start_shared_memory, 0xA5, static_size());
}
inline void run_cluster(u64 first) {
    forget_cluster();
    for (int b = 0; b < cluster_size; b++) {
        const u64 n = first + b;
        const uint3 place = {unsigned(n % grid_size.x), unsigned(n / grid_size.x % grid_size.y), unsigned(n / grid_size.x / grid_size.y)};
        for (int r = 0; r < block_threads; r++) start(threads[b * block_threads + r], b, r, place);
    }
    for (bool some = true; some && failure.empty();) {
        some = progress = false;
        for (auto &t : threads)
            if (!t.done && failure.empty()) {
                some = true;
                now = &t;
                thread_place = t.thread;
                block_place = t.grid_place;
                swapcontext(&home, &t.context);
            }
        if (some && !progress && failure.empty()) failure = "threads wait for one another forever";
    }
    now = nullptr;
    refuse_unfreed();
}
} // namespace gpu

// Run a kernel, without the statement of this number if there is one; returns what is wrong with it, nullptr if nothing.
extern "C" const char *launch(void *function, const unsigned *grid, const unsigned *block, int cluster, uint64_t *given, int left_out) {
    gpu::entry = gpu::Entry(function);
    gpu::arguments = given;
    gpu::cluster_size = cluster;
    gpu::grid_size = {grid[0], grid[1], grid[2]};
    gpu::block_size = {block[0], block[1], block[2]};
    gpu::block_threads = block[0] * block[1] * block[2];
    gpu::left_out = left_out;
    gpu::failure = cluster > 1 && gpu::static_size() ? "static shared memory in a cluster is not modelled" : "";
    const uint64_t count = uint64_t(grid[0]) * grid[1] * grid[2];
    for (uint64_t first = 0; first < count && gpu::failure.empty(); first += cluster) gpu::run_cluster(first);
    gpu::threads.clear();
    gpu::words = gpu::static_words = {};
    return gpu::failure.empty() ? nullptr : gpu::failure.c_str();
}
