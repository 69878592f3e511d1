// CUDA on a CPU, as a kernel's source sees it; `emulated_gpu.cpp` is the model behind.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("shared_memory"))) // so that the model knows shared memory by its address
#define UNWATCHED __attribute__((noinline, no_sanitize("thread"))) // what a kernel's source does not do itself
struct uint3 {
    unsigned x, y, z;
};
struct uint4 {
    uint32_t x, y, z, w;
};
struct float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace gpu {
extern uint3 thread_place, block_place, block_size, grid_size; // of the thread that runs

// An operand of an asm statement: a variable that it writes, or a value and the variable that it was read from.
struct Ref {
    void *place = nullptr;
    int size = 0;
    uint64_t bits = 0;
    const void *home = nullptr;
    uint64_t get() const {
        uint64_t v = bits;
        if (place) {
            v = 0;
            memcpy(&v, place, size);
        }
        return v;
    }
    void set(uint64_t v) const { memcpy(place, &v, size); }
};
template <class T> UNWATCHED Ref out(T &place) { return {&place, sizeof(T)}; }
template <class T> UNWATCHED Ref in(const T &value) {
    static_assert(!std::is_array_v<T>);
    Ref r;
    r.size = sizeof(T);
    r.home = &value;
    memcpy(&r.bits, &value, sizeof(T));
    return r;
}
void run_assembly(int &program, const char *text, const Ref *refs, int count); // `program` keeps what was read of the text
template <class... Refs> UNWATCHED void assembly(int &program, const char *text, const Refs &...refs) {
    const Ref all[] = {refs..., Ref{}};
    run_assembly(program, text, all, sizeof...(refs));
}

bool kept(int statement);              // false for the one statement that a test leaves out
uint32_t shared_of(const void *place); // the address of shared memory
void *dynamic();                       // the block's dynamic shared memory
void all_threads();                    // __syncthreads
uint64_t shuffled(uint64_t value, int lane);
inline uint32_t add_atomically(uint32_t *place, uint32_t value) {
    const uint32_t before = *place;
    *place += value;
    return before;
}
} // namespace gpu

#define threadIdx gpu::thread_place
#define blockIdx gpu::block_place
#define blockDim gpu::block_size
#define gridDim gpu::grid_size
#define __syncthreads gpu::all_threads
#define __shfl_sync(mask, value, lane) gpu::shuffled(value, lane)
#define __cvta_generic_to_shared(p) gpu::shared_of(p)
#define atomicAdd(place, value) gpu::add_atomically(place, value)
