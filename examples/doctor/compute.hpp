// The compute check: how fast each rank copies memory and multiplies matrices while all ranks compute, as in training,
// and whether its products are right. The factors are small whole numbers, so each element is known exactly.
#pragma once

#include <dhp/ops/gemm.hpp>
#include <dhp/tensor/tensor.hpp>

#include "examination.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace examples::doctor {

[[nodiscard]] inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns the median seconds of work(), synchronized with the device. Short work is repeated until it can be measured.
/// delayed: this rank deliberately sleeps for much longer than the work takes.
[[nodiscard]] double median_seconds(auto& dev, int runs, bool delayed, auto work) {
  constexpr double min_run_s = 0.02;
  constexpr int trials = 4;  // trial 0 warms up
  const auto run = [&](int times) {
    const double start_s = now_s();
    for (int time = 0; time < times; ++time) work();
    dev.synchronize();
    if (delayed)
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::max(0.4, 40 * (now_s() - start_s))));
    return (now_s() - start_s) / times;
  };
  if (delayed) return run(1);
  double once_s = min_run_s;
  for (int trial = 0; trial < trials; ++trial) once_s = std::min(once_s, run(1));
  const int times = static_cast<int>(std::min(min_run_s / once_s, 1000.0));
  std::vector<double> taken;
  for (int repeat = 0; repeat < runs; ++repeat) taken.push_back(run(times));
  return median(std::move(taken));
}

/// Returns -1, 0 or 1 in an irregular pattern, so that a wrong address shows.
[[nodiscard]] inline int factor(std::int64_t row, std::int64_t column) {
  return static_cast<int>((row * 7 + column * 13 + row * column) % 3) - 1;
}

/// Checks some thousand elements of the square of the n x n matrix of factors; returns the first wrong one or "".
[[nodiscard]] inline std::string wrong_element(const std::vector<float>& product, std::int64_t n) {
  const auto step = std::max<std::int64_t>(1, n * n / 4096) | 1;
  for (std::int64_t i = 0; i < n * n; i += step) {
    int sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += factor(i / n, k) * factor(k, i % n);
    const auto got = product[static_cast<std::size_t>(i)];
    if (got != static_cast<float>(sum))
      return dhp::concat("element [", i / n, ", ", i % n, "] is ", got, ", not ", sum);
  }
  return "";
}

/// Returns the number of cores that this process may use.
[[nodiscard]] inline int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

template <class Dev>
[[nodiscard]] Finding check_compute(Examination<Dev>& exam) {
  constexpr bool gpu = !Dev::host_accessible;
  constexpr Limit copy_limit{1.5, 3}, product_limit{1.3, 2};
  Finding finding;
  auto& dev = exam.dev;
  const bool quick = exam.options.quick;
  const int runs = quick ? 7 : 9;
  const auto measure = [&](const char* name, const char* unit, double amount, const Limit& limit,
                           const char* fault, const char* way_out, auto work) {
    exam.world.barrier();
    const double s = median_seconds(dev, runs, exam.fault(fault), work);
    finding.figures.push_back({name, unit, gather(dev, exam.world, {amount / s})});
    judge_rates(exam, finding.figures.back(), limit, way_out, finding);
  };

  using Element = std::conditional_t<gpu, dhp::bf16, float>;  // bf16 uses tensor cores
  const std::int64_t n = gpu ? (quick ? 4096 : 8192) : (quick ? 256 : 768);
  std::vector<Element> factors;
  factors.reserve(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n * n; ++i)
    factors.push_back(Element(static_cast<float>(factor(i / n, i % n))));
  const auto a = dhp::Tensor<Dev>::from_host(dev, dhp::Shape{n, n}, factors);
  auto c = dhp::Tensor<Dev>::zeros(dev, dhp::DType::f32, dhp::Shape{n, n});
  measure(gpu ? "bf16 product" : "fp32 product", "TFLOP/s", 2e-12 * static_cast<double>(n * n * n),
          product_limit, "slow-gemm",
          gpu ? "look at its clock, temperature and power limit (nvidia-smi -q -d PERFORMANCE)"
              : "is another program at work there, or are two ranks bound to the same cores?",
          [&] { dhp::gemm(dev, a, a, c.mut()); });
  auto product = c.template to_host<float>(dev);
  if (exam.fault("wrong-gemm")) product[0] += 1;
  const auto wrong = gather_texts(dev, exam.world, wrong_element(product, n));
  for (std::size_t rank = 0; rank < wrong.size(); ++rank)
    if (const int number = static_cast<int>(rank); !wrong[rank].empty())
      finding.problems.push_back({Verdict::failed,
                                  {number},
                                  dhp::concat(exam.who(number), " multiplies wrongly: ",
                                              wrong[rank], "; take it out of the cluster")});

  // The buffers exceed the caches. A copied byte counts once. Filling the buffers maps their pages before the copies.
  const std::size_t bytes = (quick ? std::size_t{8} : std::size_t{128}) << (gpu ? 22 : 20);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  std::vector<std::byte> here(bytes, std::byte{1}), there(bytes, std::byte{2});
  const auto copies = [&](const char* name, auto work) {
    measure(name, "GB/s", gigabytes, copy_limit, "slow-copy",
            gpu ? "is another program at work there, or has its PCIe link lost lanes (lspci -vv)?"
                : "is another program at work there, or is memory missing from a channel?",
            work);
  };
  copies("host memory", [&] {
    std::memcpy(there.data(), here.data(), bytes);
    here.swap(there);  // so that a compiler cannot drop a repeated copy
  });
  if constexpr (gpu) {
    const auto from = dev.allocate(bytes);
    const auto to = dev.allocate(bytes);
    dev.fill_zero(from.get(), bytes);
    copies("GPU memory", [&] { dev.copy(to.get(), from.get(), bytes); });
    copies("host to GPU", [&] { dev.copy_from_host(to.get(), here.data(), bytes); });
    copies("GPU to host", [&] { static_cast<void>(dev.start_copy_to_host(from.get(), bytes)); });
  }
  finding.notes = {dhp::concat("products of ", n, " x ", n, " matrices, copies of ", bytes >> 20,
                               " MiB; medians of ", runs, " runs")};
  const auto& host = exam.host(exam.rank());
  const auto ranks_here = std::count(exam.hosts.begin(), exam.hosts.end(), host);
  if (!gpu && ranks_here * exam.options.run.threads > usable_cores())
    finding.notes.push_back(dhp::concat(ranks_here, " ranks share ", usable_cores(),
                                        " cores of host ", host, ", so times vary"));
  return finding;
}

}  // namespace examples::doctor
