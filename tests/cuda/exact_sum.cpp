// Exact sums and fingerprints have the bits of the Cpu's.
#include <dhp/cpu/exact_sum.hpp>
#include <dhp/cpu/fingerprint.hpp>
#include <dhp/cuda/exact_sum.hpp>
#include <dhp/cuda/fingerprint.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

struct Sums {
  std::vector<std::int64_t> high, low;
  std::vector<double> value;
  std::int32_t flag = 0;
  bool operator==(const Sums&) const = default;
};

// Accumulates each vector in turn, then finalizes. start: the limbs before that.
template <class T, class Dev>
Sums sum_all(Dev& dev, const std::vector<std::vector<T>>& vectors, std::int64_t start = 0) {
  const auto count = static_cast<std::int64_t>(vectors.front().size());
  const std::vector<std::int64_t> limbs(vectors.front().size(), start);
  auto high = Tensor<Dev>::from_host(dev, {count}, limbs);
  auto low = Tensor<Dev>::from_host(dev, {count}, limbs);
  auto flag = Tensor<Dev>::zeros(dev, DType::i32, {1});
  for (const auto& values : vectors)
    exact_accumulate(dev, Tensor<Dev>::from_host(dev, {count}, values), high.mut(), low.mut(),
                     flag.mut());
  Tensor<Dev> x(dev, dtype_of<T>(), {count});
  exact_finalize(dev, high, low, Tensor<Dev>::zeros(dev, DType::i32, {1}), x.mut());
  const auto found = x.template to_host<T>(dev);
  return {high.template to_host<std::int64_t>(dev), low.template to_host<std::int64_t>(dev),
          std::vector<double>(found.begin(), found.end()),
          flag.template to_host<std::int32_t>(dev)[0]};
}

}  // namespace

TEST_CASE_TEMPLATE("exact sums have the bits of the Cpu, small limbs and large", T, double, float) {
  Gpu gpu;
  Cpu cpu;
  std::vector<std::vector<T>> vectors;
  for (std::uint32_t use = 1; use <= 5; ++use) {
    auto values = random_tensor<T>(cpu, {2000}, use).template to_host<T>(cpu);
    for (std::size_t at = 0; at < values.size(); at += 3) values[at] *= static_cast<T>(1e-9);
    for (std::size_t at = 1; at < values.size(); at += 7) values[at] *= static_cast<T>(1e4);
    vectors.push_back(values);
  }
  CHECK(sum_all<T>(gpu, vectors) == sum_all<T>(cpu, vectors));
  const auto beyond = (std::int64_t{1} << 52) + 12345;
  CHECK(sum_all<T>(gpu, vectors, beyond) == sum_all<T>(cpu, vectors, beyond));
}

TEST_CASE_TEMPLATE("exact sums: values out of range, NaN and infinity set the flag for good", T,
                   double, float) {
  const auto run = [](auto& dev) {
    using Dev = std::remove_reference_t<decltype(dev)>;
    for (const double bad : {0x1p18, -0x1p18, 1e30, HUGE_VAL, -HUGE_VAL, double{NAN}}) {
      const auto found = sum_all<T>(dev, {{1, static_cast<T>(bad), 2}, {0, 0, 0}});
      CHECK(found.flag == 1);
      CHECK(found.value == std::vector<double>{1, 0, 2});
    }
    CHECK(sum_all<T>(dev, {{1, T(262143), 2}}).flag == 0);
    CHECK(sum_all<T>(dev, {{}}).flag == 0);

    const auto limbs = Tensor<Dev>::zeros(dev, DType::i64, {3});
    const auto flag = Tensor<Dev>::from_host(dev, {1}, std::vector<std::int32_t>{1});
    Tensor<Dev> x(dev, dtype_of<T>(), {3});
    exact_finalize(dev, limbs, limbs, flag, x.mut());
    for (const double value : widened<Dev>(dev, x.view())) CHECK(std::isnan(value));
  };
  Gpu gpu;
  Cpu cpu({.threads = 2});
  run(gpu);
  run(cpu);
}

TEST_CASE("fingerprints have the bits of the Cpu") {
  const auto of = [](auto& dev, DType type, std::int64_t count) {
    using Dev = std::remove_reference_t<decltype(dev)>;
    const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count), 200);
    const auto x = type == DType::u8 ? Tensor<Dev>::from_host(dev, {count}, bytes)
                                     : random_tensor(dev, type, {count}, 3);
    auto sum = Tensor<Dev>::from_host(dev, {1}, std::vector<std::int64_t>{5});
    fingerprint<Dev>(dev, x, 1000, sum.mut(), -3);
    return sum.template to_host<std::int64_t>(dev)[0];
  };
  Gpu gpu;
  Cpu cpu;
  for (const auto type : {DType::f64, DType::f32, DType::bf16, DType::u8})
    for (const std::int64_t count : {1, 700, 5000})
      CHECK(of(gpu, type, count) == of(cpu, type, count));
}
