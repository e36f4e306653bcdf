// Dropout: the mask is a function of the seed, the step, the use and the element's number, and of
// nothing else.
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/rows.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

constexpr RandomStream stream{.seed = 0x123456789abcdefu, .step = 3, .use = 5};

// What the definition says, one element at a time.
template <class T>
std::vector<double> expected(const Tensor<Cpu>& x, double p, std::int64_t first_row) {
  auto values = widened(x);
  const auto scale = static_cast<Accumulator<T>>(1 / (1 - p));
  const auto columns = x.columns();
  for (std::size_t at = 0; at < values.size(); ++at) {
    const auto number = static_cast<std::uint64_t>(first_row * columns) + at;
    const bool keep = stream.uniform(number) >= p;
    const T kept = static_cast<T>(static_cast<Accumulator<T>>(values[at]) * scale);
    values[at] = keep ? static_cast<double>(kept) : 0;
  }
  return values;
}

template <class T>
std::vector<double> run(Cpu& dev, const Tensor<Cpu>& x, const RowNumbers<Cpu>& rows,
                        const DropoutOptions& options) {
  Tensor<Cpu> y(dev, dtype_of<T>(), x.shape());
  dropout(dev, x, rows, options, y.mut());
  return widened(y);
}

}  // namespace

TEST_CASE_TEMPLATE("each element by its definition, at any number of threads", T, double, float,
                   bf16, f16) {
  for (const int threads : {1, 2, 3}) {
    Cpu dev({.threads = threads});
    for (const auto& shape : {Shape{0, 3}, {1, 1}, {50, 7}, {3, 11, 32}, {20, 131}})
      for (const double p : {0.0, 0.1, 0.5, 0.9}) {
        CAPTURE(to_text(shape));
        CAPTURE(p);
        const auto x = random_tensor<T>(dev, shape, 1);
        const DropoutOptions options{
            .probability = p, .random = stream, .total_columns = shape.back()};
        CHECK(run<T>(dev, x, {.first = 1000003}, options) == expected<T>(x, p, 1000003));
      }
  }
}

TEST_CASE("blocks made together are the stream's blocks, also where the counter carries") {
  for (const std::uint64_t first : {0ull, 5ull, 0xfffffffdull, 0xfffffffffffffffcull}) {
    const cpu::PhiloxBlocks blocks(stream, first);
    for (std::size_t at = 0; at < cpu::PhiloxBlocks::count; ++at) {
      const auto right = stream.block(first + at);
      for (std::size_t word = 0; word < 4; ++word)
        CHECK(blocks.words[4 * at + word] == right[word]);
    }
  }
}

TEST_CASE_TEMPLATE("columns split over ranks have the mask of the whole", T, double, bf16) {
  Cpu dev;
  const std::int64_t rows = 9, columns = 45;
  const auto x = random_tensor<T>(dev, {rows, columns}, 1);
  DropoutOptions options{.probability = 0.4, .random = stream, .total_columns = columns};
  const auto whole = run<T>(dev, x, {.first = 77}, options);
  Tensor<Cpu> joined(dev, dtype_of<T>(), {rows, columns});
  for (const auto part : {Range{0, 1}, {1, 7}, {7, 10}, {10, 45}}) {
    Tensor<Cpu> piece(dev, dtype_of<T>(), {rows, part.size()});
    copy_columns(dev, x, part.first, piece.mut(), 0, part.size());
    options.first_column = part.first;
    dropout(dev, piece, {.first = 77}, options, piece.mut());  // in place
    copy_columns(dev, piece, 0, joined.mut(), part.first, part.size());
  }
  CHECK(widened(joined) == whole);
}

TEST_CASE("rows are known by their numbers, wherever they lie") {
  Cpu dev;
  const std::int64_t columns = 13;
  const auto x = random_tensor<float>(dev, {6, columns}, 1);
  const DropoutOptions options{.probability = 0.5, .random = stream, .total_columns = columns};
  const auto whole = run<float>(dev, x, {.first = 40}, options);
  const std::vector<std::int32_t> order{4, 0, 5, 5};
  const auto index = Tensor<Cpu>::from_host(dev, {4}, order);
  const auto numbers = Tensor<Cpu>::from_host(dev, {4}, std::vector<std::int64_t>{44, 40, 45, 45});
  Tensor<Cpu> some(dev, DType::f32, {4, columns});
  gather_rows(dev, x, index, some.mut());
  const auto got = run<float>(dev, some, {.index = numbers.view()}, options);
  for (std::size_t at = 0; at < got.size(); ++at)
    CHECK(got[at] == whole[static_cast<std::size_t>(order[at / 13]) * 13 + at % 13]);
}

TEST_CASE("the share that is dropped, its scale, and other masks for other steps and uses") {
  Cpu dev;
  const auto ones =
      Tensor<Cpu>::from_host(dev, {100, 1000}, std::vector<double>(std::size_t{100000}, 1.0));
  DropoutOptions options{.probability = 0.1, .random = stream, .total_columns = 1000};
  const auto mask = run<double>(dev, ones, {}, options);
  double kept = 0;
  for (const double value : mask) {
    if (value == 0) continue;
    CHECK(value == 1 / 0.9);
    ++kept;
  }
  CHECK(std::abs(kept / 1e5 - 0.9) < 0.004);  // four standard deviations
  const auto share_alike = [&](RandomStream other) {
    options.random = other;
    const auto second = run<double>(dev, ones, {}, options);
    double alike = 0;
    for (std::size_t at = 0; at < mask.size(); ++at) alike += second[at] == mask[at] ? 1e-5 : 0;
    return alike;
  };
  CHECK(share_alike(stream) == doctest::Approx(1));
  CHECK(std::abs(share_alike({.seed = stream.seed, .step = 4, .use = 5}) - 0.82) < 0.01);
  CHECK(std::abs(share_alike({.seed = stream.seed, .step = 3, .use = 6}) - 0.82) < 0.01);
  CHECK(std::abs(share_alike({.seed = 1, .step = 3, .use = 5}) - 0.82) < 0.01);
}

TEST_CASE("a dropped element is 0 whatever it was") {
  Cpu dev;
  auto x = Tensor<Cpu>::from_host(dev, {1, 64}, std::vector<float>(64, HUGE_VALF));
  dropout(dev, x, {}, {.probability = 0.5, .random = stream, .total_columns = 64}, x.mut());
  for (std::size_t at = 0; at < 64; ++at)
    CHECK(widened(x)[at] == (stream.uniform(at) >= 0.5 ? HUGE_VAL : 0));
}

TEST_CASE("what does not fit is refused") {
  Cpu dev;
  const auto x = random_tensor<float>(dev, {3, 4}, 1);
  auto y = random_tensor<float>(dev, {3, 4}, 1);
  auto half = random_tensor<f16>(dev, {3, 4}, 1);
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
  CHECK(message_of([&] { dropout(dev, x, {}, {.total_columns = 4}, half.mut()); }) ==
        "dropout: [3, 4] of f32 does not fit [3, 4] of f16");
  const auto two = Tensor<Cpu>::zeros(dev, DType::i64, {2});
  CHECK(message_of([&] {
          dropout(dev, x, {.index = two.view()}, {.total_columns = 4}, y.mut());
        }) == "dropout: 2 row numbers for 3 rows");
  const auto narrow = Tensor<Cpu>::zeros(dev, DType::i32, {3});
  CHECK(message_of([&] {
          dropout(dev, x, {.index = narrow.view()}, {.total_columns = 4}, y.mut());
        }) == "dropout: row numbers are i64, not i32");
}
