// cuDNN's plans for a described device: several threads compile them, and from_text() makes them without compiling.
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/cudnn_conv2d.hpp>
#include <dhp/device/thread_pool.hpp>
#include <tests/cuda/described_device.hpp>

using namespace dhp::detail::cuda;

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("plans: batch norms are compiled, convolutions are not") {
  if (!has_driver_library()) return;
  const CudnnTarget h200(h200_for_cudnn());
  const auto norm = candidates(norm_graph({DType::bf16, 1024, 64, 16}, {}, 1e-5f), h200, {});
  REQUIRE(!norm.empty());
  CHECK(norm.front().compiles());
  const Shape x{8, 56, 56, 64}, w{64, 3, 3, 64};
  const Conv2dProblem problem(Conv2dProblem::Kind::forward, DType::bf16, x, w, x, {3, 1, 1}, 16);
  const auto convolution = candidates(problem.graph(), h200, problem.rules(false));
  REQUIRE(!convolution.empty());
  CHECK_FALSE(convolution.front().compiles());
}

TEST_CASE("plans: plans compiled by several threads are quickly loaded from their text") {
  if (!has_driver_library()) return;
  const CudnnTarget h200(h200_for_cudnn());
  const CudnnRules rules;
  const auto graph = norm_backward_graph({DType::bf16, 32 * 28 * 28, 128, 16}, {.residual = true});
  const auto all = candidates(graph, h200, rules);
  REQUIRE(all.size() >= 2);
  std::string texts[2];
  std::size_t workspace[2] = {};
  const auto begin = now_s();
  detail::ThreadPool threads(2);
  threads.run(2, [&](std::int64_t at) {
    const auto number = static_cast<std::size_t>(at);
    if (const auto plan = CudnnPlan::make(graph, h200, all[number], rules)) {
      texts[number] = plan->text();
      workspace[number] = plan->workspace_bytes();
    }
  });
  const auto compiled_s = now_s() - begin;
  if (texts[0].empty()) {
    MESSAGE("skipped: this driver does not load kernels for an H200");
    return;
  }
  CHECK(texts[0] != texts[1]);
  for (const std::size_t at : {0, 1}) {
    const auto start = now_s();
    const auto plan = CudnnPlan::from_text(graph, h200, texts[at], rules);
    const auto read_s = now_s() - start;
    REQUIRE(plan.has_value());
    CHECK(plan->workspace_bytes() == workspace[at]);
    CHECK(plan->text().size() == texts[at].size());
    CHECK(read_s < compiled_s / 4);  // on an idle machine it is 1/50
  }
  // cuDNN recognizes these texts as invalid.
  CHECK_FALSE(CudnnPlan::from_text(graph, h200, "", rules).has_value());
  CHECK_FALSE(CudnnPlan::from_text(graph, h200, "{}", rules).has_value());
  CHECK_FALSE(CudnnPlan::from_text(graph, h200, texts[0].substr(0, texts[0].size() / 2), rules)
                  .has_value());
  const auto version = concat("\"cudnnVersion\":", cudnnGetVersion());
  CHECK_FALSE(
      CudnnPlan::from_text(graph, h200, replaced(texts[0], version, "\"cudnnVersion\":1"), rules)
          .has_value());
  const CudnnTarget smaller(
      replaced(h200_for_cudnn(), "\"multiProcessorCount\": 132", "\"multiProcessorCount\": 114"));
  CHECK_FALSE(CudnnPlan::from_text(graph, smaller, texts[0], rules).has_value());
  // The plan needs more memory than these rules allow.
  const CudnnRules frugal{.workspace_bytes = workspace[0] - 1};
  if (workspace[0] > 0)
    CHECK_FALSE(CudnnPlan::from_text(graph, h200, texts[0], frugal).has_value());
}
