// Attention of a row to a cache of earlier rows, against attention of all rows at once.
#include <dhp/cpu/attention.hpp>
#include <dhp/cpu/cached_attention.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/support/attention.hpp>

namespace {

using Ints = std::vector<std::int32_t>;
constexpr int size = 6;

struct Case {
  int heads = 1, key_heads = 1;
};

/// Samples of 5, 1 and 9 rows; q, k and v are columns of one matrix. Returns y of the last rows twice: computed at
/// once, and with a cache of all earlier rows.
template <class T>
std::array<std::vector<double>, 2> both_ways(Cpu& dev, const Case& with) {
  const Ints last_rows{4, 5, 14};
  const std::int64_t columns = with.heads * size, key_columns = with.key_heads * size;
  const auto width = columns + 2 * key_columns;
  const auto all = random_tensor<T>(dev, {15, width}, 1);
  const auto part = [](const Tensor<Cpu>& of, std::int64_t first, std::int64_t count) {
    return ConstView<Cpu>(of.view().bytes() + static_cast<std::size_t>(first) * sizeof(T),
                          of.dtype(), {of.rows(), count});
  };
  const AttentionOptions options{.heads = with.heads,
                                 .total_heads = with.heads,
                                 .key_heads = with.key_heads,
                                 .causal = true,
                                 .row_stride = width};
  Tensor<Cpu> y(dev, dtype_of<T>(), {15, columns});
  Tensor<Cpu> logsumexp(dev, accumulation_type(dtype_of<T>()), {with.heads, 15});
  attention_forward(dev, part(all, 0, columns), part(all, columns, key_columns),
                    part(all, columns + key_columns, key_columns),
                    Samples(dev, {0, 5, 6, 15}, {5, 1, 9}), options, y.mut(), logsumexp.mut());
  Tensor<Cpu> wanted(dev, y.dtype(), {3, columns}), found(dev, y.dtype(), {3, columns});
  gather_rows(dev, y.view(), tensor_of(dev, last_rows).view(), wanted.mut());

  Tensor<Cpu> cache(dev, y.dtype(), {2, 3, 10, key_columns});
  const auto append = [&](const Ints& rows, const Ints& positions, const Ints& starts) {
    Tensor<Cpu> chosen(dev, all.dtype(), {std::ssize(rows), width});
    gather_rows(dev, all.view(), tensor_of(dev, rows).view(), chosen.mut());
    detail::append_to_cache(
        dev, part(chosen, columns, key_columns), part(chosen, columns + key_columns, key_columns),
        tensor_of(dev, starts).view(), tensor_of(dev, positions).view(), width, cache.mut());
    return chosen;
  };
  append({0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13}, {0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7},
         {0, 4, 4, 12});
  const auto last = append(last_rows, {4, 0, 8}, {0, 1, 2, 3});
  detail::attention_step(dev, part(last, 0, columns), cache.view(),
                         tensor_of(dev, Ints{4, 0, 8}).view(), options, found.mut());
  return {widened(wanted), widened(found)};
}

}  // namespace

TEST_CASE_TEMPLATE("cached attention: a row after a cache gives the result of its whole sample", T,
                   double, float, bf16, f16) {
  for (const auto& with : {Case{1, 1}, {4, 4}, {6, 2}}) {
    CAPTURE(with.heads);
    CHECK(same_on_threads([&](Cpu& dev) { return both_ways<T>(dev, with)[1]; }));
    Cpu dev({.bf16_products = Bf16Products::floats});  // tiles round the weights of whole samples
    const auto [wanted, found] = both_ways<T>(dev, with);
    CHECK(distance(found, wanted) < (std::is_same_v<T, double> ? 1e-14 : 1e-6));
  }
}

TEST_CASE("cached attention: operands that do not fit are refused") {
  Cpu dev;
  const auto q = random_tensor<float>(dev, {2, 6}, 1);
  Tensor<Cpu> cache(dev, DType::f32, {2, 2, 4, 6});
  const auto step = [&](const Ints& positions, const AttentionOptions& options) {
    return message_of([&] {
      Tensor<Cpu> y(dev, DType::f32, {2, 6});
      detail::attention_step(dev, q.view(), cache.view(), tensor_of(dev, positions).view(), options,
                             y.mut());
    });
  };
  CHECK(step({0, 4}, {.causal = true}) ==
        "attention: position 4 of sample 1 is beyond a cache of 4 rows");
  CHECK(step({0}, {.causal = true}) ==
        "attention: 2 rows need as many positions of i32, got [1] of i32");
  CHECK(step({0, 0}, {}) ==
        "attention: 2 rows after a cache [2, 2, 4, 6]; causal attention without "
        "dropout has one for each sample");
  CHECK(step({0, 0}, {.heads = 2, .total_heads = 2, .key_heads = 1, .causal = true}) ==
        "attention: a cache [2, 2, 4, 6] of f32 does not fit rows [2, 6] of f32");
  CHECK(message_of([&] {
          detail::append_to_cache(dev, q.view(), q.view(), tensor_of(dev, Ints{0, 2}).view(),
                                  tensor_of(dev, Ints{0, 1}).view(), 0, cache.mut());
        }) == "attention: offsets [2] of i32 do not fit a cache [2, 2, 4, 6]");
  CHECK(message_of([&] {
          detail::append_to_cache(dev, q.view(), q.view(), tensor_of(dev, Ints{0, 1, 5}).view(),
                                  tensor_of(dev, Ints{0, 0}).view(), 0, cache.mut());
        }) == "attention: rows [1, 5) of sample 1 do not lie in the 2 rows");
}
