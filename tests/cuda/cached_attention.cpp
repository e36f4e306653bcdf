#include <dhp/cpu/cached_attention.hpp>
#include <dhp/cuda/cached_attention.hpp>
#include <tests/cuda/gpu.hpp>

TEST_CASE_TEMPLATE("attention after a cache agrees with the Cpu", T, double, float, bf16, f16) {
  for (const auto& [heads, key_heads, size] : {std::tuple{1, 1, 1}, {4, 2, 40}, {2, 2, 256}}) {
    CAPTURE(size);
    const AttentionOptions options{
        .heads = heads, .total_heads = heads, .key_heads = key_heads, .causal = true};
    agrees_with_cpu<T>([&](auto& side) -> Results {
      const Shape of_keys{44, key_heads * size};
      const auto k = side.elements(of_keys, 1), v = side.elements(of_keys, 2),
                 q = side.elements({3, heads * size}, 3);
      std::vector<std::int32_t> at(44);
      std::iota(at.begin() + 1, at.begin() + 4, 0);
      std::iota(at.begin() + 4, at.end(), 0);
      const auto offsets = side.tensor({4}, std::vector<std::int32_t>{0, 1, 4, 44}),
                 positions = side.tensor({44}, at),
                 last = side.tensor({3}, std::vector<std::int32_t>{0, 2, 39});
      auto cache = side.fresh({2, 3, 40, key_heads * size}), y = side.fresh(q.shape());
      detail::append_to_cache(side.dev, k.view(), v.view(), offsets.view(), positions.view(), 0,
                              cache.mut());
      detail::attention_step(side.dev, q.view(), cache.view(), last.view(), options, y.mut());
      return {side.values(y.view())};
    });
  }
}
