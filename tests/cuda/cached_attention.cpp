#include <dhp/cpu/cached_attention.hpp>
#include <dhp/cuda/cached_attention.hpp>
#include <dhp/cuda/rotary.hpp>
#include <tests/cuda/gpu.hpp>

#include <sys/mman.h>

TEST_CASE_TEMPLATE("attention after a cache agrees with the Cpu", T, double, float, bf16, f16) {
  for (const auto& [heads, key_heads, size] : {std::tuple{1, 1, 1}, {4, 2, 40}, {2, 2, 256}}) {
    CAPTURE(size);
    const AttentionOptions options{
        .heads = heads, .total_heads = heads, .key_heads = key_heads, .causal = true};
    agrees_with_cpu<T>([&](auto& side) -> Results {
      using Dev = std::remove_reference_t<decltype(side.dev)>;
      const auto columns = std::int64_t{heads} * size, key_columns = std::int64_t{key_heads} * size;
      auto with_stride = options;
      with_stride.row_stride = columns + 2 * key_columns;
      const auto all = side.elements({44, with_stride.row_stride}, 1);
      const auto part = [&](std::int64_t first, const Shape& shape) {
        return ConstView<Dev>(
            all.view().bytes() + first * static_cast<std::int64_t>(size_of(all.dtype())),
            all.dtype(), shape);
      };
      std::vector<std::int32_t> at(44);
      std::iota(at.begin() + 1, at.begin() + 4, 0);
      std::iota(at.begin() + 4, at.end(), 0);
      const auto offsets = side.tensor({4}, std::vector<std::int32_t>{0, 1, 4, 44}),
                 positions = side.tensor({44}, at),
                 last = side.tensor({3}, std::vector<std::int32_t>{0, 2, 39});
      auto cache = side.fresh({2, 3, 40, key_columns}), y = side.fresh({3, columns});
      detail::append_to_cache(side.dev, part(columns, {44, key_columns}),
                              part(columns + key_columns, {44, key_columns}), offsets.view(),
                              positions.view(), with_stride.row_stride, cache.mut());
      detail::attention_step(side.dev, part(0, {3, columns}), cache.view(), last.view(),
                             with_stride, y.mut());
      return {side.values(y.view())};
    });
  }
}

TEST_CASE("cached attention: a row without a place in the cache is skipped and gives NaN") {
  Side<float, Gpu> side;
  const auto rows = side.elements({2, 4}, 1);
  const auto offsets = side.tensor({3}, std::vector<std::int32_t>{0, 1, 2}),
             beyond = side.tensor({2}, std::vector<std::int32_t>{3, -1});
  auto cache = side.elements({2, 2, 3, 4}, 2), y = side.fresh({2, 4});
  const auto before = side.values(cache.view());
  detail::append_to_cache(side.dev, rows.view(), rows.view(), offsets.view(), beyond.view(), 0,
                          cache.mut());
  CHECK(side.values(cache.view()) == before);
  detail::attention_step(side.dev, rows.view(), cache.view(), beyond.view(), {.causal = true},
                         y.mut());
  for (const double value : side.values(y.view())) CHECK(std::isnan(value));
}

#ifndef __CUDACC__
TEST_CASE("cached attention: rotary positions and caches work beyond 2^32 elements") {
  Side<bf16, Gpu> side;
  const auto start = side.elements({6, 2}, 1);
  const auto results = [&](std::int64_t row_stride, std::int64_t capacity) {
    // Reserves addresses only. Rows and places that are used get memory, because the machine may not have enough for
    // all.
    const auto bytes = static_cast<std::size_t>(2 * (6 * row_stride + 12 * capacity));
    void* const room = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return std::vector<double>();
    auto* const to = static_cast<std::byte*>(room);
    executor::allocated({to, bytes});
    const auto back = [&](std::int64_t place) {
      auto* const page = to + place / 4096 * 4096;
      REQUIRE(::mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
    };
    for (std::int64_t row = 0; row < 6; ++row) {
      back(2 * row * row_stride);
      back(12 * row_stride + 4 * row * capacity);
      std::memcpy(to + 2 * row * row_stride, start.view().bytes() + 4 * row, 4);
    }
    const auto ints = [&](const std::vector<std::int32_t>& of) {
      return side.tensor({std::ssize(of)}, of);
    };
    const View<Gpu> rows{to, DType::bf16, {6, 2}},
        cache{to + 12 * row_stride, DType::bf16, {2, 3, capacity, 2}};
    const auto positions = ints({0, 1, 0, 1, 0, 1});
    detail::rotary(side.dev, rows, positions.view(), {.row_stride = row_stride});
    detail::append_to_cache<Gpu>(side.dev, rows, rows, ints({0, 2, 4, 6}).view(), positions.view(),
                                 row_stride, cache);
    auto y = side.fresh({3, 2});
    detail::attention_step<Gpu>(side.dev, rows.slice(0, 3), cache, ints({1, 1, 1}).view(),
                                {.causal = true, .row_stride = row_stride}, y.mut());
    executor::freed(to);
    ::munmap(room, bytes);
    return side.values(y.view());
  };
  const auto far = results(std::int64_t{1} << 31, std::int64_t{1} << 31);
  if (far.empty()) MESSAGE("skipped: this process may not have 72 GiB of addresses (ulimit -v)");
  else CHECK(far == results(2, 2));
}
#endif
