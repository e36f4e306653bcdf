// CudnnPlans: the plans of a device by the text of their problem. The first time a problem comes up its graph is
// built, a few plans are timed on the very arguments, and the fastest stays, also in the file of choices.
#pragma once

#include <dhp/cuda/cudnn_plan.hpp>
#include <dhp/cuda/tuning.hpp>

#include <unordered_map>

namespace dhp::cuda {

class CudnnPlans : public CudaKept {
 public:
  explicit CudnnPlans(Cuda& dev) : target_(dev.cudnn()) {}

  /// Runs the problem on `arguments`; false where cuDNN cannot, and then nothing was written. build() makes the
  /// graph; `problem` is one line that names all that the graph depends on. A graph reads none of what it
  /// writes, so that it may be timed on its arguments.
  template <class Build>
  [[nodiscard]] bool run(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                         const CudnnArguments& arguments, Build build) {
    auto found = plans_.find(problem);
    if (found == plans_.end())
      found = plans_.emplace(problem, choose(dev, problem, rules, arguments, build)).first;
    if (!found->second) return false;
    run(dev, *found->second, arguments);
    return true;
  }

  /// Whether run() was asked for it and could not: then its arguments need not be made.
  [[nodiscard]] bool refused(const std::string& problem) const {
    const auto found = plans_.find(problem);
    return found != plans_.end() && !found->second;
  }

  /// Whether cuDNN proposes any way to run it. Compiles and launches nothing.
  template <class Build>
  [[nodiscard]] bool can(const std::string& problem, const CudnnRules& rules, Build build) {
    if (const auto found = plans_.find(problem); found != plans_.end())
      return found->second.has_value();
    const auto graph = built(build);
    return graph && !candidates(*graph, target_, rules).empty();
  }

 private:
  static void run(Cuda& dev, const CudnnPlan& plan, const CudnnArguments& arguments) {
    // Calls are ordered on the stream, so all may use one workspace.
    if (plan.workspace_bytes() <= dev.workspace_bytes()) {
      plan.run(dev.cudnn(), arguments, dev.workspace());
      return;
    }
    const auto more = dev.allocate(plan.workspace_bytes());
    plan.run(dev.cudnn(), arguments, more.get());
  }

  /// A graph that cuDNN refuses is one that it cannot run.
  template <class Build>
  [[nodiscard]] static std::optional<CudnnGraph> built(Build build) {
    try {
      return build();
    } catch (const CudaError&) {
      return {};
    }
  }

  template <class Build>
  std::optional<CudnnPlan> choose(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                                  const CudnnArguments& arguments, Build build) {
    const std::optional<CudnnGraph> made = built(build);
    if (!made) return {};
    const CudnnGraph& graph = *made;
    auto& tuning = dev.kept<Tuning>();
    const auto all = candidates(graph, target_, rules);
    if (const auto chosen = tuning.choices.find(problem))
      for (const auto& one : all)
        if (one.name() == *chosen)
          if (auto plan = CudnnPlan::make(graph, target_, one, rules)) return plan;

    const auto wanted = tuning.may_time(dev) ? Tuning::most_candidates : 1;
    std::optional<CudnnPlan> best;
    std::string best_name;
    float best_ms = std::numeric_limits<float>::infinity();
    std::vector<std::string> seen;
    for (const auto& one : all) {
      if (seen.size() >= wanted) break;
      const auto name = one.name();  // heuristics repeat themselves
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      auto plan = CudnnPlan::make(graph, target_, one, rules);
      if (!plan) continue;
      if (wanted == 1) return plan;
      const auto ms = time(dev, *plan, arguments);
      if (!ms) continue;
      seen.push_back(name);
      if (*ms < best_ms) {
        best = std::move(plan);
        best_name = name;
        best_ms = *ms;
      }
    }
    if (best) tuning.choices.keep(problem, best_name);
    return best;
  }
  /// Empty where there is no memory for it, or it does not start after all.
  static std::optional<float> time(Cuda& dev, const CudnnPlan& plan,
                                   const CudnnArguments& arguments) {
    try {
      return Stopwatch().shortest_ms(dev.stream(), [&] { run(dev, plan, arguments); });
    } catch (const Error&) {
      return {};
    }
  }

  CudnnTarget target_;
  std::unordered_map<std::string, std::optional<CudnnPlan>> plans_;
};

}  // namespace dhp::cuda
