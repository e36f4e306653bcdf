// CudnnPlans: a device's cuDNN plans, by problem text. At the first use it builds the graph, times
// a few plans on the actual arguments and keeps the fastest, also in the file of choices. A plan
// that turns out to be unsupported when it runs is refused, and the next one takes its place.
#pragma once

#include <dhp/cuda/cudnn_plan.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/tuning.hpp>

#include <map>

namespace dhp::cuda {

class CudnnPlans : public CudaCached {
 public:
  explicit CudnnPlans(Cuda& dev) : target_(dev.cudnn()) {}

  /// Runs the problem on `arguments`; false if cuDNN cannot, and nothing is written then. build()
  /// makes the graph; `problem` is one line with everything the graph depends on. A graph must not
  /// read its outputs, so that it can be timed on its arguments.
  template <class Build>
  [[nodiscard]] bool run(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                         const CudnnArguments& arguments, Build build) {
    auto found = plans_.find(problem);
    if (found == plans_.end())
      found = plans_.emplace(problem, choose(dev, problem, rules, arguments, build, {})).first;
    auto& chosen = found->second;
    while (chosen.plan) {
      try {
        run(dev, *chosen.plan, arguments);
        ++chosen.calls;
        return true;
      } catch (const CudaError& error) {
        if (!is_unsupported(error)) throw;
        chosen.refused_plans.push_back(chosen.name);
        chosen.refusal = error.sentence();
        chosen.plan.reset();
        chosen = choose(dev, problem, rules, arguments, build, std::move(chosen));
      }
    }
    return false;
  }

  /// Whether run() failed or refuse() was called for it: then its arguments need not be prepared.
  [[nodiscard]] bool refused(const std::string& problem) const {
    const auto found = plans_.find(problem);
    return found != plans_.end() && !found->second.plan;
  }
  /// Excludes a problem for a reason outside cuDNN.
  void refuse(const std::string& problem, const std::string& why) {
    plans_.insert_or_assign(problem, Chosen{.refusal = why});
  }
  /// All requests; refused_alone: only refused ones.
  [[nodiscard]] std::vector<LibraryUse> uses(bool refused_alone = false) const {
    std::vector<LibraryUse> all;
    for (const auto& [problem, chosen] : plans_)
      if (!chosen.plan || !refused_alone)
        all.push_back({"cuDNN", problem, chosen.calls, chosen.refusal});
    return all;
  }

 private:
  struct Chosen {
    std::optional<CudnnPlan> plan{};
    std::string name{};     // of the plan
    std::string refusal{};  // if there is no plan
    std::int64_t calls = 0;
    std::vector<std::string> refused_plans{};  // by name, when they ran

    [[nodiscard]] bool has_refused(const std::string& plan_name) const {
      return std::find(refused_plans.begin(), refused_plans.end(), plan_name) !=
             refused_plans.end();
    }
    [[nodiscard]] Chosen with(std::optional<CudnnPlan> taken, std::string its_name) && {
      return {std::move(taken), std::move(its_name), {}, calls, std::move(refused_plans)};
    }
  };

  static void run(Cuda& dev, const CudnnPlan& plan, const CudnnArguments& arguments) {
    // The stream orders all calls, so they share one workspace.
    if (plan.workspace_bytes() <= dev.workspace_bytes()) {
      plan.run(dev.cudnn(), arguments, dev.workspace());
      return;
    }
    const auto more = dev.allocate(plan.workspace_bytes());
    plan.run(dev.cudnn(), arguments, more.get());
  }

  /// A graph that cuDNN refuses to build counts as unsupported.
  template <class Build>
  [[nodiscard]] static std::optional<CudnnGraph> built(Build build, std::string* why = nullptr) {
    try {
      return build();
    } catch (const CudaError& error) {
      if (why != nullptr) *why = error.sentence();
      return {};
    }
  }
  /// cuDNN's last error text.
  [[nodiscard]] static std::string said() {
    char text[512] = "";
    cudnnGetLastErrorString(text, sizeof text);
    return text[0] == 0 ? "its engines do not run, or need too much memory" : text;
  }

  /// chosen: what was chosen and refused before.
  template <class Build>
  Chosen choose(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                const CudnnArguments& arguments, Build build, Chosen chosen) {
    const std::optional<CudnnGraph> made = built(build, &chosen.refusal);
    if (!made) return chosen;
    const CudnnGraph& graph = *made;
    auto& tuning = dev.cached<Tuning>();
    const auto all = candidates(graph, target_, rules);
    if (all.empty()) chosen.refusal = "it proposes no engine";
    if (const auto stored = tuning.choices.find(problem))
      for (const auto& one : all)
        if (one.name() == *stored && !chosen.has_refused(*stored))
          if (auto plan = CudnnPlan::make(graph, target_, one, rules))
            return std::move(chosen).with(std::move(plan), *stored);

    const auto wanted = Tuning::may_time(dev) ? Tuning::most_candidates : 1;
    float best_ms = std::numeric_limits<float>::infinity();
    std::vector<std::string> seen;
    for (const auto& one : all) {
      if (seen.size() >= wanted) break;
      const auto name = one.name();  // heuristics return duplicates
      if (chosen.has_refused(name) || std::find(seen.begin(), seen.end(), name) != seen.end())
        continue;
      auto plan = CudnnPlan::make(graph, target_, one, rules);
      if (!plan) {
        chosen.refusal = said();
        continue;
      }
      if (wanted == 1) return std::move(chosen).with(std::move(plan), name);
      const auto ms = time(dev, *plan, arguments, chosen.refusal);
      if (!ms) continue;
      seen.push_back(name);
      if (*ms < best_ms) {
        chosen = std::move(chosen).with(std::move(plan), name);
        best_ms = *ms;
      }
    }
    if (chosen.plan) {
      chosen.refusal.clear();
      tuning.choices.keep(problem, chosen.name);
    }
    return chosen;
  }
  /// nullopt if memory is short or the plan does not start.
  static std::optional<float> time(Cuda& dev, const CudnnPlan& plan,
                                   const CudnnArguments& arguments, std::string& why) {
    try {
      return shortest_ms(dev.stream(), [&] { run(dev, plan, arguments); });
    } catch (const Error& error) {
      why = error.sentence();
      return {};
    }
  }

  CudnnTarget target_;
  std::map<std::string, Chosen> plans_;
};

}  // namespace dhp::cuda
