// CudnnPlans: the plans of a device by the text of their problem. The first time a problem comes up its graph is
// built, a few plans are timed on the very arguments, and the fastest stays, also in the file of choices.
#pragma once

#include <dhp/cuda/cudnn_plan.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/tuning.hpp>

#include <map>

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
    auto& chosen = found->second;
    if (!chosen.plan) return false;
    run(dev, *chosen.plan, arguments);
    ++chosen.calls;
    return true;
  }

  /// Whether run() was asked for it and could not, or refuse() was called: then its arguments need not be made.
  [[nodiscard]] bool refused(const std::string& problem) const {
    const auto found = plans_.find(problem);
    return found != plans_.end() && !found->second.plan;
  }
  /// It is not to be run, for a reason that is no matter of cuDNN's.
  void refuse(const std::string& problem, const std::string& why) {
    plans_.insert_or_assign(problem, Chosen{{}, why});
  }
  /// What was asked for; refused_alone: and not done.
  [[nodiscard]] std::vector<LibraryUse> uses(bool refused_alone = false) const {
    std::vector<LibraryUse> all;
    for (const auto& [problem, chosen] : plans_)
      if (!chosen.plan || !refused_alone)
        all.push_back({"cuDNN", problem, chosen.calls, chosen.refusal});
    return all;
  }

  /// Whether cuDNN proposes any way to run it. Compiles and launches nothing.
  template <class Build>
  [[nodiscard]] bool can(const std::string& problem, const CudnnRules& rules, Build build) {
    if (const auto found = plans_.find(problem); found != plans_.end())
      return found->second.plan.has_value();
    const auto graph = built(build);
    return graph && !candidates(*graph, target_, rules).empty();
  }

 private:
  struct Chosen {
    std::optional<CudnnPlan> plan;
    std::string refusal{};  // where there is none
    std::int64_t calls = 0;
  };

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
  [[nodiscard]] static std::optional<CudnnGraph> built(Build build, std::string* why = nullptr) {
    try {
      return build();
    } catch (const CudaError& error) {
      if (why != nullptr) *why = error.sentence();
      return {};
    }
  }
  /// What cuDNN said last.
  [[nodiscard]] static std::string said() {
    char text[512] = "";
    cudnnGetLastErrorString(text, sizeof text);
    return text[0] == 0 ? "its engines do not run, or need too much memory" : text;
  }

  template <class Build>
  Chosen choose(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                const CudnnArguments& arguments, Build build) {
    Chosen chosen;
    const std::optional<CudnnGraph> made = built(build, &chosen.refusal);
    if (!made) return chosen;
    const CudnnGraph& graph = *made;
    auto& tuning = dev.kept<Tuning>();
    const auto all = candidates(graph, target_, rules);
    if (all.empty()) chosen.refusal = "it proposes no engine";
    if (const auto stored = tuning.choices.find(problem))
      for (const auto& one : all)
        if (one.name() == *stored)
          if (auto plan = CudnnPlan::make(graph, target_, one, rules)) return {std::move(plan)};

    const auto wanted = Tuning::may_time(dev) ? Tuning::most_candidates : 1;
    std::string best_name;
    float best_ms = std::numeric_limits<float>::infinity();
    std::vector<std::string> seen;
    for (const auto& one : all) {
      if (seen.size() >= wanted) break;
      const auto name = one.name();  // heuristics repeat themselves
      if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      auto plan = CudnnPlan::make(graph, target_, one, rules);
      if (!plan) {
        chosen.refusal = said();
        continue;
      }
      if (wanted == 1) return {std::move(plan)};
      const auto ms = time(dev, *plan, arguments, chosen.refusal);
      if (!ms) continue;
      seen.push_back(name);
      if (*ms < best_ms) {
        chosen.plan = std::move(plan);
        best_name = name;
        best_ms = *ms;
      }
    }
    if (chosen.plan) {
      chosen.refusal.clear();
      tuning.choices.keep(problem, best_name);
    }
    return chosen;
  }
  /// Empty where there is no memory for it, or it does not start after all.
  static std::optional<float> time(Cuda& dev, const CudnnPlan& plan,
                                   const CudnnArguments& arguments, std::string& why) {
    try {
      return Stopwatch().shortest_ms(dev.stream(), [&] { run(dev, plan, arguments); });
    } catch (const Error& error) {
      why = error.sentence();
      return {};
    }
  }

  CudnnTarget target_;
  std::map<std::string, Chosen> plans_;
};

}  // namespace dhp::cuda
