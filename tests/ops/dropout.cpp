// Dropout: the mask depends only on seed, step, use and the number of the element.
#include <dhp/cpu/dropout.hpp>
#include <tests/support/tensors.hpp>

namespace {

constexpr RandomStream stream{.seed = 0x123456789abcdefu, .series = 3, .use = 5};

// Computes the definition, one element at a time.
template <class T>
std::vector<double> expected(const Tensor<Cpu>& x, const detail::RowNumbers<Cpu>& rows,
                             const DropoutOptions& options) {
  auto values = widened(x);
  const auto scale = static_cast<Accumulator<T>>(1 / (1 - options.probability));
  std::size_t at = 0;
  for (std::int64_t row = 0; row < x.rows(); ++row)
    for (std::int64_t c = 0; c < x.columns(); ++c, ++at) {
      const auto number =
          rows.index.empty() ? rows.first + row : rows.index.data<std::int64_t>()[row];
      const auto place = number * options.total_columns + options.first_column + c;
      const bool keep =
          stream.short_bits(static_cast<std::uint64_t>(place)) >= 0x1p16 * options.probability;
      const T kept = static_cast<T>(static_cast<Accumulator<T>>(values[at]) * scale);
      values[at] = keep ? static_cast<double>(kept) : 0;
    }
  return values;
}

}  // namespace

TEST_CASE_TEMPLATE("dropout: each element matches the definition", T, double, float, bf16, f16) {
  for (const int threads : {1, 2, 3}) {
    Cpu dev({.threads = threads});
    for (const auto& shape : {Shape{0, 3}, {1, 1}, {50, 7}, {3, 11, 32}, {20, 131}})
      for (const double p : {0.0, 0.1, 0.5, 0.9}) {
        INFO("shape ", to_text(shape), " p ", p);
        std::vector<std::int64_t> numbers;
        for (std::int64_t row = 0; row < shape.rows(); ++row) numbers.push_back(row * 37 % 11);
        const auto index = tensor_of(dev, numbers);
        // All columns of consecutive rows, or some columns of any rows.
        for (const bool whole : {true, false}) {
          auto x = random_tensor<T>(dev, shape, 1);
          Tensor<Cpu> y(dev, dtype_of<T>(), shape);
          const detail::RowNumbers<Cpu> rows{whole ? ConstView<Cpu>() : index.view(), 1000003};
          const DropoutOptions options{.probability = p,
                                       .random = stream,
                                       .first_column = whole ? 0 : 7,
                                       .total_columns = shape.back() + (whole ? 0 : 10)};
          const auto reference = expected<T>(x, rows, options);
          dropout(dev, x, rows, options, y.mut());
          CHECK(widened(y) == reference);
          dropout(dev, x, rows, options, x.mut());
          CHECK(widened(x) == reference);
        }
      }
  }
}

TEST_CASE("dropout: a batch of Philox blocks equals the stream's, also if the counter carries") {
  for (const std::uint64_t first : {0ull, 5ull, 0xfffffffdull, 0xfffffffffffffffcull}) {
    const detail::PhiloxBlocks blocks(stream, first);
    for (std::size_t at = 0; at < detail::PhiloxBlocks::count; ++at) {
      const auto reference = stream.block(first + at);
      for (std::size_t word = 0; word < 4; ++word)
        CHECK(blocks.words[4 * at + word] == reference[word]);
    }
  }
}

TEST_CASE("dropout: a dropped element is 0, even if it was infinite") {
  Cpu dev;
  auto x = Tensor<Cpu>::from_host(dev, {1, 64}, std::vector<float>(64, HUGE_VALF));
  dropout(dev, x, {}, {.probability = 0.5, .random = stream, .total_columns = 64}, x.mut());
  for (std::size_t at = 0; at < 64; ++at)
    CHECK(widened(x)[at] == (stream.short_bits(at) >= 0x8000 ? HUGE_VAL : 0));
}

TEST_CASE("dropout: operands that do not fit are refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  auto y = random_tensor<float>(dev, {3, 4}, 1);
  const auto with = [&](double p, std::int64_t first, std::int64_t total) {
    return message_of([&] {
      dropout(dev, x, {},
              {.probability = p, .random = stream, .first_column = first, .total_columns = total},
              y.mut());
    });
  };
  CHECK(with(0.5, 0, 4) == "no error");
  CHECK(with(1.0, 0, 4) == "dropout: the probability must be in [0, 1), got 1");
  CHECK(with(-0.5, 0, 4) == "dropout: the probability must be in [0, 1), got -0.5");
  CHECK(with(std::nan(""), 0, 4) == "dropout: the probability must be in [0, 1), got nan");
  CHECK(with(0.5, 1, 4) == "dropout: columns from 1 of [3, 4] are not among 4");
  CHECK(with(0.5, -1, 4) == "dropout: columns from -1 of [3, 4] are not among 4");
  const auto two = Tensor<Cpu>::zeros(dev, DType::i64, {2});
  CHECK(message_of([&] {
          dropout(dev, x, {.index = two.view()}, {.total_columns = 4}, y.mut());
        }) == "dropout: 2 row numbers for 3 rows");
  const auto narrow = Tensor<Cpu>::zeros(dev, DType::i32, {3});
  CHECK(message_of([&] {
          dropout(dev, x, {.index = narrow.view()}, {.total_columns = 4}, y.mut());
        }) == "dropout: row numbers are i64, not i32");
}
