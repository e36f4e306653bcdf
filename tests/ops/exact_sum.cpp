// Exact sums: any order, grouping and number of threads give the exact sum, rounded once.
#include <dhp/cpu/exact_sum.hpp>
#include <tests/support/tensors.hpp>

namespace {

constexpr std::int64_t width = 37;
constexpr std::size_t contributions = 1000;

// Contributions [width], with magnitudes from 1e-12 to 1e3 and both signs.
template <class T>
std::vector<Tensor<Cpu>> mixed(Cpu& dev) {
  const RandomStream random{.seed = 3};
  std::vector<Tensor<Cpu>> result;
  for (std::size_t k = 0; k < contributions; ++k) {
    std::vector<T> values;
    for (std::int64_t i = 0; i < width; ++i) {
      const auto at = 2 * (k * width + static_cast<std::size_t>(i));
      const double sign = random.bits(at) % 2 == 0 ? 1 : -1;
      values.push_back(static_cast<T>(sign * std::pow(10, -12 + 15 * random.uniform(at + 1))));
    }
    result.push_back(tensor_of(dev, values));
  }
  return result;
}

struct Limbs {
  explicit Limbs(Cpu& dev, std::int64_t count = width)
      : high(Tensor<Cpu>::zeros(dev, DType::i64, {count})),
        low(Tensor<Cpu>::zeros(dev, DType::i64, {count})),
        flag(Tensor<Cpu>::zeros(dev, DType::i32, {1})) {}
  void add(Cpu& dev, const Tensor<Cpu>& x) {
    exact_accumulate(dev, x, high.mut(), low.mut(), flag.mut());
  }
  // Adds limbs like a communicator.
  void add(Cpu& dev, const Limbs& other) {
    for (const auto& [to, from] : {std::pair{&high, &other.high}, {&low, &other.low}}) {
      const auto values = from->to_host<std::int64_t>(dev);
      auto* sums = to->mut().data<std::int64_t>();
      for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
    }
  }
  template <class T>
  std::vector<T> value(Cpu& dev) const {
    Tensor<Cpu> x(dev, dtype_of<T>(), high.shape());
    exact_finalize(dev, high, low, Tensor<Cpu>::zeros(dev, DType::i32, {1}), x.mut());
    return x.to_host<T>(dev);
  }
  bool flagged(Cpu& dev) const { return flag.to_host<std::int32_t>(dev)[0] != 0; }
  Tensor<Cpu> high, low, flag;
};

// Returns the value rounded to the grid, as an integer in units of 2^-83.
detail::Int128 on_grid(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // value = mantissa 2^exponent
  const auto whole = static_cast<detail::Int128>(std::llrint(std::ldexp(mantissa, 53)));
  const int shift = exponent - 53 + 83;
  if (shift >= 0) return whole << shift;
  return static_cast<detail::Int128>(
      std::llrint(std::ldexp(value, 83)));  // ties to even, like exact_accumulate
}

}  // namespace

TEST_CASE_TEMPLATE("exact sum: order changes no bit, and the exact sum is rounded once", T, double,
                   float) {
  Cpu dev;
  const auto x = mixed<T>(dev);
  std::vector<detail::Int128> exact(width);
  for (const auto& tensor : x) {
    const auto values = widened(tensor);
    for (std::size_t i = 0; i < values.size(); ++i) exact[i] += on_grid(values[i]);
  }
  std::vector<T> expected;
  for (const auto total : exact)  // the compiler's conversion rounds once; the scaling is exact
    expected.push_back(static_cast<T>(total) * static_cast<T>(0x1p-83));

  std::vector<std::size_t> order(contributions);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::uint32_t shuffle = 0; shuffle < 12; ++shuffle) {
    const RandomStream random{.seed = 5, .use = shuffle};
    for (std::size_t i = contributions - 1; i > 0; --i)
      std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1), i)]);
    const std::size_t groups = 1 + shuffle;
    Cpu other({.threads = 1 + static_cast<int>(shuffle % 3)});
    std::vector<Limbs> parts;
    for (std::size_t g = 0; g < groups; ++g) parts.emplace_back(other);
    for (const auto k : order) parts[(k * k + shuffle) % groups].add(other, x[k]);
    for (std::size_t g = 1; g < groups; ++g) parts[0].add(other, parts[g]);
    CHECK(!parts[0].flagged(other));
    CHECK(parts[0].value<T>(other) == expected);
  }
}

TEST_CASE_TEMPLATE("exact sum: a single value is returned, rounded to 2^-83", T, double, float) {
  Cpu dev({.threads = 2});
  const std::int64_t count = detail::cpu::elementwise_tile + 5;
  auto x = random_tensor<T>(dev, {count}, 1);
  T* values = x.mut().template data<T>();
  for (std::int64_t i = 0; i < count; ++i)
    values[i] =
        static_cast<T>(std::ldexp(static_cast<double>(values[i]), static_cast<int>(i % 40) - 25));
  values[0] = T(0x1p-83);
  values[1] = T(-0x1p-83);
  values[2] = T(0x1p-90);  // below the grid
  values[3] = static_cast<T>(262143.984375);
  values[4] = static_cast<T>(-262143.984375);
  Limbs limbs(dev, count);
  limbs.add(dev, x);
  const auto got = limbs.value<T>(dev);
  bool same = true;
  for (std::int64_t i = 0; i < count; ++i)
    same &= std::abs(static_cast<double>(got[static_cast<std::size_t>(i)]) -
                     static_cast<double>(values[i])) <= 0x1p-84;
  CHECK(same);
  CHECK(got[0] == values[0]);
  CHECK(got[1] == values[1]);
  CHECK(got[2] == 0);
  CHECK(got[3] == values[3]);
  CHECK(got[4] == values[4]);
  CHECK(!limbs.flagged(dev));
}

TEST_CASE("exact sum: ties and near ties are rounded once, in the fast and the wide form") {
  // Limbs at half an ulp of float, exactly or off by one grid step; each again with limbs that cancel but are too large
  // for the fast form.
  Cpu dev;
  const std::int64_t one = std::int64_t{1} << 33;    // 1.0 in the high limb
  const std::int64_t half = std::int64_t{1} << 9;    // 2^-24, half an ulp of float at 1
  const std::int64_t carry = std::int64_t{1} << 52;  // in the low limb: 4 units of high
  const std::vector<std::int64_t> high{one + half,  one + half,  one + half, one + 3 * half,
                                       -one - half, -one - half, 0,          one};
  const std::vector<std::int64_t> low{0, 1, -1, 0, 1, -1, 3, std::int64_t{1} << 50};
  const std::vector<float> expected{1.0f,  1.0f + 0x1p-23f,  1.0f,       1.0f + 0x1p-22f,
                                    -1.0f, -1.0f - 0x1p-23f, 0x1.8p-82f, 1.0f};
  for (const bool wide : {false, true}) {
    auto h = high;
    auto l = low;
    if (wide)
      for (std::size_t i = 0; i < h.size(); ++i) {
        h[i] -= 4;
        l[i] += carry;
      }
    Limbs limbs(dev, 0);
    limbs.high = tensor_of(dev, h);
    limbs.low = tensor_of(dev, l);
    CHECK(limbs.value<float>(dev) == expected);
  }
}

TEST_CASE("exact sum: 16 bits are refused") {
  Cpu dev;
  CHECK(message_of([&] { Limbs(dev, 3).add(dev, random_tensor<bf16>(dev, {3}, 1)); }) ==
        "expected an accumulation type (f64 or f32), got bf16");
}
