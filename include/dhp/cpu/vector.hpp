// Vectors of the build target's width, by the vector extensions of GCC and clang. Operators work element by element,
// comparisons return masks, and `mask ? a : b` selects element by element.
#pragma once

#include <dhp/core/config.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace dhp::detail::cpu {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

typedef float Floats __attribute__((vector_size(vector_bytes)));

// Builds for x86-64-v3 and later use the instructions for bf16 of AVX-512 at run time if the machine has them.
#if defined(__x86_64__) && defined(__FMA__)
[[nodiscard]] inline bool has_bf16_instructions() { return __builtin_cpu_supports("avx512bf16"); }
#else
[[nodiscard]] constexpr bool has_bf16_instructions() { return false; }
#endif

template <class A, class F, class... From>
[[nodiscard]] consteval bool takes_vectors() {
  if constexpr (!std::is_same_v<A, float>) return false;
  else return std::is_invocable_r_v<Floats, F&, std::enable_if_t<!std::is_void_v<From>, Floats>...>;
}
/// Computes to[i] = f(from[i]...) for `count` elements of A. If f takes vectors, it is called only with vectors. So the
/// bits of an element do not depend on its position, and vectorization does not depend on the compiler.
template <class A, class F, class... From>
void for_vectors(std::int64_t count, A* to, F f, const From*... from) {
  std::int64_t at = 0;
  if constexpr (takes_vectors<A, F, From...>()) {
    constexpr std::int64_t width = vector_bytes / sizeof(float);
    const auto vectors = [&](std::size_t bytes) {
      const auto load = [&](const float* values) {
        Floats loaded{};
        std::memcpy(&loaded, values + at, bytes);
        return loaded;
      };
      const Floats result = f(load(from)...);
      std::memcpy(to + at, &result, bytes);
    };
    for (; at + width <= count; at += width) vectors(sizeof(Floats));
    if (at < count) vectors(as_size(count - at) * sizeof(float));
  } else {
    for (; at < count; ++at) to[at] = f(from[at]...);
  }
}

}  // namespace dhp::detail::cpu
