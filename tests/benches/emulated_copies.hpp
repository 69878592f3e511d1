// mbarriers and asynchronous copies, which arrive as late as they may.
#pragma once
#include "emulated_ordering.hpp"

namespace gpu {
// --- mbarriers ---

struct Barrier {
    u32 count = 0, pending = 0;
    int64_t bytes = 0;
    u32 phase = 0;
    int agent = 0;
    Event made;
    Gathered seen, fenced;
    Clock all_seen, all_fenced; // of the last phase that is complete
    Event next() const { return {agent, phase + 1}; }
};
inline std::map<u32, Barrier> barriers;
inline std::vector<Copy> flying; // bulk loads under way
inline Barrier &barrier(u32 address) {
    auto found = barriers.find(address);
    if (found == barriers.end()) fail("a barrier that nobody made");
    if (!now->seen.knows(found->second.made)) fail("unordered: a barrier is used that another thread makes");
    return found->second;
}
inline void make_barrier(u32 address, u32 count) {
    access(at_shared(address), 8, WRITE);
    Barrier b;
    b.count = b.pending = count;
    b.agent = agents++;
    b.made = now->event();
    barriers[address] = b;
}
inline void settle(Barrier &b) {
    if (b.pending || b.bytes) return;
    const Event done = b.next();
    b.all_seen = b.seen.taken();
    b.all_fenced = b.fenced.taken();
    b.all_seen.learn(done);
    b.all_fenced.learn(done);
    b.phase++;
    b.pending = b.count;
    progress = true;
}
inline void arrive_at(u32 address) {
    Barrier &b = barrier(address);
    visit(at_shared(address));
    b.seen.add(now->seen);
    b.fenced.add(now->fenced);
    now->tick();
    b.pending--;
    settle(b);
}
// mbarrier.arrive is a release, mbarrier.try_wait an acquire where it returns true (PTX ISA, mbarrier.arrive, mbarrier.try_wait).
inline void arrive_expecting(u32 address, u32 bytes) {
    Barrier &b = barrier(address);
    b.seen.add(now->seen);
    b.fenced.add(now->fenced);
    now->tick();
    b.bytes += bytes;
    b.pending--;
    settle(b);
}
inline void finish_commits(u32 address); // of products of tcgen05
inline bool passed(u32 address, u32 parity) {
    Barrier &b = barrier(address);
    auto complete = [&] { return (b.phase & 1) != parity; };
    if (!complete()) finish_commits(address);
    for (size_t n = 0; n < flying.size() && !complete(); n++)
        if (flying[n].barrier == address) { // a copy lands when somebody waits for it, not before
            const Copy c = flying[n];
            flying.erase(flying.begin() + n);
            memcpy(c.to, c.data.empty() ? c.from : c.data.data(), c.size);
            each_word(c.to, c.size, [&](Word &w) { end_access(w, WRITE, b.next()); });
            b.bytes -= c.size;
            progress = true;
            settle(b);
            break;
        }
    if (!complete()) {
        yield();
        return false;
    }
    now->seen.learn(b.all_seen);
    now->fenced.learn(b.all_fenced);
    return true;
}

// --- bulk copies: by the async proxy (PTX ISA, cp.async.bulk) ---

inline void refuse_crooked(u64 to, u64 from, u64 size) {
    if ((to | from | size) % 16) fail("a bulk copy that is not aligned to 16 bytes");
}
// To shared memory: nobody may look before the barrier's phase is complete and waited for. Until version 9.3 the PTX ISA leaves open by
// which proxy a copy reaches its barrier; so, as for data, a proxy fence must lie between the barrier's making and the copy.
inline void load_bulk(u32 to, const u8 *from, u32 size, u32 address) {
    refuse_crooked(to, u64(from), size);
    if (!now->fenced.knows(barrier(address).made)) fail("unordered: a bulk copy uses a barrier that no proxy fence has made known");
    each_word(at_shared(to), size, [&](Word &w) { begin_access(w, WRITE, now->fenced); });
    flying.push_back({at_shared(to), from, size, address});
}
// A tensor map as `emulated_gpu.py` writes it: elements of 8 bytes without gaps, the innermost dimension first.
struct TensorMap {
    u64 address, rank, swizzle, shape[3], box[3];
};
// PTX ISA, fence.proxy.tensormap: a map in global memory is read through a proxy of its own, which must be made to see it.
inline void acquire_map(const void *map) { now->maps.push_back(map); }
// PTX ISA, Tensor swizzling modes: within lines of 128 bytes, chunk c of line r goes to c ^ (r mod 2, 4 or 8), by the address itself.
inline u32 swizzled(u32 address, u64 span) {
    const u32 lines = span == 128 ? 7 : span == 64 ? 3 : span == 32 ? 1 : 0;
    return address ^ ((address >> 7 & lines) << 4);
}
inline void load_tensor(u32 to, const TensorMap &map, const std::vector<int> &at, u32 address, u32 blocks) {
    if (std::find(now->maps.begin(), now->maps.end(), &map) == now->maps.end()) fail("unordered: a tensor map is used that no fence has made known");
    if (at.size() != map.rank) fail("as many coordinates are given as the tensor has not");
    if (to % 128 || (map.swizzle && 8 * map.box[0] > map.swizzle)) fail("a box that is not aligned to 128 bytes, or wider than its swizzle");
    u64 begin[3] = {0, 0, 0};
    for (size_t d = 0; d < at.size(); d++) begin[d] = u64(at[d]);
    const u32 size = 8 * u32(map.box[0] * map.box[1] * map.box[2]);
    std::vector<u8> image(size);
    u32 offset = 0;
    for (u64 z = begin[2]; z < begin[2] + map.box[2]; z++)
        for (u64 y = begin[1]; y < begin[1] + map.box[1]; y++)
            for (u64 x = begin[0]; x < begin[0] + map.box[0]; x++, offset += 8) {
                if (x >= map.shape[0] || y >= map.shape[1] || z >= map.shape[2]) fail("a box that lies outside of its tensor");
                memcpy(&image[swizzled(to + offset, map.swizzle) - to], (u64 *)map.address + x + map.shape[0] * (y + map.shape[1] * z), 8);
            }
    for (int block = 0; block < cluster_size; block++)
        if (blocks >> block & 1) {
            const u32 there = u32(block - now->block) * WINDOW;
            u8 *const place = at_shared(to + there);
            visit(place);
            if (!now->fenced.knows(barrier(address + there).made)) fail("unordered: a tensor copy uses a barrier that no proxy fence has made known");
            each_word(place, size, [&](Word &w) { begin_access(w, WRITE, now->fenced); });
            flying.push_back({place, nullptr, size, address + there, image});
        }
}
// From shared memory: read and written when waited for. `.read` waits for the reading alone.
inline void store_bulk(u8 *to, u32 from, u32 size) {
    refuse_crooked(u64(to), from, size);
    each_word(at_shared(from), size, [&](Word &w) { begin_access(w, READ, now->fenced); });
    now->bulk_stores.open.push_back({to, at_shared(from), size});
}
inline void read_source(Copy &c) {
    if (c.was_read) return;
    c.was_read = true;
    c.data.assign(c.from, c.from + c.size);
    if (now->bulk_done.agent < 0) now->bulk_done.agent = agents++;
    now->bulk_done.time++;
    each_word(c.from, c.size, [&](Word &w) { end_access(w, READ, now->bulk_done); });
    learn_completion(now->bulk_done);
}
inline void write_result(Copy &c) {
    read_source(c);
    memcpy(c.to, c.data.data(), c.size);
}
inline void wait_for_reads(size_t most) {
    auto &groups = now->bulk_stores.committed;
    for (size_t n = 0; n + most < groups.size(); n++)
        for (auto &c : groups[n]) read_source(c);
}
// When a kernel has ended, all that its stores have read is in global memory; of shared memory that they did not read nothing is left.
inline void end_stores() {
    for (auto &group : now->bulk_stores.committed)
        for (auto &c : group)
            if (c.was_read) write_result(c);
}

// --- cp.async: by the generic proxy, visible to the thread itself when it has waited for the group (PTX ISA, cp.async.wait_group) ---

inline void begin_copy(u32 to, const u8 *from, u32 size) {
    each_word(at_shared(to), size, [&](Word &w) { begin_access(w, WRITE, now->seen); });
    now->copies.open.push_back({at_shared(to), from, size});
}
inline void end_copy(Copy &c) {
    memcpy(c.to, c.from, c.size);
    each_word(c.to, c.size, [&](Word &w) { end_access(w, WRITE, now->event()); });
}
} // namespace gpu
