#include <dhp/cpu.hpp>
#include <examples/doctor/compute.hpp>
#include <tests/support/test.hpp>

using namespace examples::doctor;

TEST_CASE("compute: a wrong element of a product is found") {
  constexpr std::int64_t n = 8;
  std::vector<float> product;
  for (std::int64_t i = 0; i < n * n; ++i) {
    float sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += float(factor(i / n, k) * factor(k, i % n));
    product.push_back(sum);
  }
  CHECK(wrong_element(product, n) == "");
  product[n + 3] += 1;
  CHECK(wrong_element(product, n).starts_with("element [1, 3] is "));
}

TEST_CASE("compute: a slow rank is reported") {
  dhp::Cpu dev;
  DoctorOptions options;
  const Examination<dhp::Cpu> exam{
      dev, dhp::Comm<dhp::Cpu>(), options, {"a", "a", "b"}, {"x", "x", "x"}};
  const Figure figure{"host memory", "GB/s", {10, 10, 2}};
  Finding finding;
  judge_rates(exam, figure, {1.5, 4}, "why?", finding);
  REQUIRE(finding.problems.size() == 1);
  CHECK(finding.problems[0].verdict == Verdict::failed);
  CHECK(finding.problems[0].ranks == std::set<int>{2});
  CHECK(finding.problems[0].sentence ==
        "rank 2 (host b): host memory has 2.00 GB/s, 5.00 times less than the median of the others "
        "of its kind (10.0); why?");
  options.tolerance = 4;
  Finding tolerant;
  judge_rates(exam, figure, {1.5, 4}, "why?", tolerant);
  CHECK(tolerant.verdict() == Verdict::ok);
}
