// The gemm check: how fast each rank multiplies matrices, and whether it multiplies right. The factors are small whole
// numbers, so every element of the product is known exactly.
#pragma once

#include <dhp/ops/gemm.hpp>

#include "examination.hpp"
#include "timing.hpp"

#include <algorithm>

namespace examples::doctor {

/// Factors in -1, 0, 1, without a pattern that a wrong address would not disturb.
[[nodiscard]] constexpr int factor(std::int64_t row, std::int64_t column) {
  return static_cast<int>((row * 7 + column * 13 + row * column) % 3) - 1;
}

/// The product of two square matrices of factors, `n` on each side.
template <class Dev>
class KnownProduct {
 public:
  KnownProduct(Dev& dev, std::int64_t n)
      : n_(n),
        a_(factors(dev, n)),
        c_(dhp::Tensor<Dev>::zeros(dev, dhp::DType::f32, dhp::Shape{n, n})) {}

  void multiply(Dev& dev) { dhp::gemm(dev, a_, a_, c_.mut()); }
  [[nodiscard]] double flop() const { return 2.0 * static_cast<double>(n_ * n_ * n_); }

  /// "", or which element of some that are computed again is wrong. spoil: one of them is changed before.
  [[nodiscard]] std::string wrong_element(Dev& dev, bool spoil) const {
    auto product = c_.template to_host<float>(dev);
    if (spoil) product[0] += 1;
    constexpr std::int64_t looked_at = 4096;
    const auto step = std::max<std::int64_t>(1, n_ * n_ / looked_at) | 1;
    for (std::int64_t i = 0; i < n_ * n_; i += step) {
      const auto row = i / n_, column = i % n_;
      int sum = 0;
      for (std::int64_t k = 0; k < n_; ++k) sum += factor(row, k) * factor(k, column);
      const auto got = product[static_cast<std::size_t>(i)];
      if (got != static_cast<float>(sum))
        return dhp::concat("element [", row, ", ", column, "] is ", got, ", not ", sum);
    }
    return "";
  }

 private:
  // The type that the device is used with: bf16 for the tensor cores of a GPU.
  using Element = std::conditional_t<Dev::host_accessible, float, dhp::bf16>;
  [[nodiscard]] static dhp::Tensor<Dev> factors(Dev& dev, std::int64_t n) {
    std::vector<Element> values;
    values.reserve(static_cast<std::size_t>(n * n));
    for (std::int64_t i = 0; i < n * n; ++i)
      values.push_back(Element(static_cast<float>(factor(i / n, i % n))));
    return dhp::Tensor<Dev>::from_host(dev, dhp::Shape{n, n}, values);
  }

  std::int64_t n_;
  dhp::Tensor<Dev> a_;
  dhp::Tensor<Dev> c_;
};

/// Rows of the matrices: enough for a GPU's tensor cores, little enough for one core.
template <class Dev>
[[nodiscard]] std::int64_t gemm_rows(bool quick) {
  if (Dev::host_accessible) return quick ? 256 : 768;
  return quick ? 4096 : 8192;
}

template <class Dev>
[[nodiscard]] Finding check_gemm(Examination<Dev>& exam) {
  Finding finding;
  finding.check = "gemm";
  KnownProduct<Dev> product(exam.dev, gemm_rows<Dev>(exam.options.quick));
  const int runs = exam.options.quick ? 7 : 9;
  exam.world.barrier();
  const double s =
      median_seconds(exam.dev, runs, exam.fault("slow-gemm"), [&] { product.multiply(exam.dev); });
  const auto* const type = Dev::host_accessible ? "fp32" : "bf16";
  finding.figures.push_back(gather_figure(exam, type, "TFLOP/s", product.flop() / s / 1e12));
  judge_rates(exam, finding.figures.back(), exam.limits().gemm_slowdown,
              Dev::host_accessible
                  ? "is another program at work there, or are two ranks bound to the same cores?"
                  : "look at its clock, temperature and power limit",
              finding);
  const auto slow = finding.problems.size();
  std::vector<Problem> own;
  if (const auto wrong = product.wrong_element(exam.dev, exam.fault("wrong-gemm")); !wrong.empty())
    own.push_back({Verdict::failed,
                   {},
                   dhp::concat(exam.who(exam.rank()), " multiplies wrongly: ", wrong,
                               "; take it out of the cluster")});
  gather_problems(exam, own, finding);
  const auto rows = gemm_rows<Dev>(exam.options.quick);
  finding.summary = dhp::concat("of ", rows, " x ", rows, " matrices, the median of ", runs,
                                finding.problems.size() == slow ? "; products are right" : "");
  return finding;
}

}  // namespace examples::doctor
