// Arithmetic outside of products, as the PTX ISA documents it: multiply-adds round once; special functions are exact and then rounded.
#pragma once
#include "emulated_threads.hpp"
#include <cmath>

namespace gpu {
template <class T> T number(u64 bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> u64 bits_of_number(T value) {
    u64 bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
inline u64 fma_float(u64 a, u64 b, u64 c) { return bits_of_number(std::fmaf(number<float>(a), number<float>(b), number<float>(c))); }
inline u64 fma_half(u64 a, u64 b, u64 c) { return half(small_float(u16(a), 5, 10) * small_float(u16(b), 5, 10) + small_float(u16(c), 5, 10)); }
// Each of two lanes of so many bits.
template <class F> u64 in_lanes(int bits, F f, u64 a, u64 b, u64 c) {
    const u64 mask = (1ull << bits) - 1;
    return f(a & mask, b & mask, c & mask) | f(a >> bits & mask, b >> bits & mask, c >> bits & mask) << bits;
}
// The result of an instruction with one or three operands; false where it is none of these.
inline bool arithmetic(const std::string &name, u64 a, u64 b, u64 c, u64 &result) {
    const double x = number<float>(a);
    if (name == "fma.rn.f32") result = fma_float(a, b, c);
    else if (name == "fma.rn.f64") result = bits_of_number(std::fma(number<double>(a), number<double>(b), number<double>(c)));
    else if (name == "fma.rn.f16x2") result = in_lanes(16, fma_half, a, b, c);
    else if (name == "fma.rn.f32x2") result = in_lanes(32, fma_float, a, b, c);
    else if (name == "mad.lo.s32") result = u32(a) * u32(b) + u32(c);
    else if (name == "neg.f32") result = bits_of_number(float(-x));
    else if (name == "ex2.approx.ftz.f32") result = bits_of_number(float(std::exp2(x)));
    else if (name == "rcp.approx.ftz.f32") result = bits_of_number(float(1 / x));
    else if (name == "rsqrt.approx.ftz.f32") result = bits_of_number(float(1 / std::sqrt(x)));
    else if (name == "sin.approx.ftz.f32") result = bits_of_number(float(std::sin(x)));
    else if (name == "tanh.approx.f32") result = bits_of_number(float(std::tanh(x)));
    else return false;
    return true;
}
} // namespace gpu
