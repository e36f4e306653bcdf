// Fingerprints depend on every bit and every position, and those of integers add up.
#include <dhp/cpu/fingerprint.hpp>
#include <dhp/ops/exact_sum.hpp>
#include <tests/support/tensors.hpp>

namespace {

std::int64_t fingerprint_of(Cpu& dev, ConstView<Cpu> x, std::int64_t first = 0,
                            std::int64_t times = 1) {
  auto sum = Tensor<Cpu>::zeros(dev, DType::i64, {1});
  fingerprint(dev, x, first, sum.mut(), times);
  return sum.to_host<std::int64_t>(dev)[0];
}

}  // namespace

TEST_CASE("fingerprint: any flipped bit changes it, in any type") {
  Cpu dev;
  for (const auto type : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::u8}) {
    CAPTURE(name_of(type));
    auto x = Tensor<Cpu>::zeros(dev, type, {5});
    const auto before = fingerprint_of(dev, x);
    for (std::size_t bit = 0; bit < 8 * x.size_bytes(); ++bit) {
      auto& byte = x.mut().bytes()[bit / 8];
      byte ^= static_cast<std::byte>(1u << bit % 8);
      CHECK(fingerprint_of(dev, x) != before);
      byte ^= static_cast<std::byte>(1u << bit % 8);
    }
  }
}

TEST_CASE("fingerprint: that of a sum of integers is the sum, by parts and for any threads") {
  Cpu dev, threads({.threads = 3});
  std::vector<std::int64_t> a, b, both;
  for (std::int64_t at = 0; at < 40000; ++at) {
    a.push_back((at - 20000) * 0x123456789abc);
    b.push_back(static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(at))));
    both.push_back(detail::wrapping_sum(a.back(), b.back()));
  }
  const auto on = [&](const std::vector<std::int64_t>& values) {
    return Tensor<Cpu>::from_host(dev, {40000}, values);
  };
  const auto of = [&](const Tensor<Cpu>& x) { return fingerprint_of(dev, x); };
  CHECK(of(on(both)) == detail::wrapping_sum(of(on(a)), of(on(b))));
  const auto x = on(a);
  CHECK(fingerprint_of(threads, x) == of(x));
  const auto parts = detail::wrapping_sum(fingerprint_of(dev, x.view().slice(0, 100)),
                                          fingerprint_of(dev, x.view().slice(100, 40000), 100));
  CHECK(parts == of(x));
  CHECK(detail::wrapping_sum(of(x), fingerprint_of(dev, x, 0, -1)) == 0);
  auto wide = Tensor<Cpu>::zeros(dev, DType::f64, {1});
  CHECK(has(message_of([&] { fingerprint(dev, x, 0, wide.mut()); }), "the sum [1] of f64"));
  std::swap(a[3], a[4]);
  CHECK(of(on(a)) != of(x));
}
