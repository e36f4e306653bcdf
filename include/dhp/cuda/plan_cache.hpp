// CudnnPlans: a device's cuDNN plans, by problem text. At a problem's first use it builds the graph and, if timing is
// allowed, times a few plans on the actual arguments. It keeps the fastest in the file of choices and, if the plan has
// a compiled kernel, in the plan's own file, so that later processes compile nothing. If a plan does not support its
// arguments when it runs, the next plan replaces it.
#pragma once

#include <dhp/cuda/cudnn_plan.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/tuning.hpp>
#include <dhp/device/thread_pool.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <span>

namespace dhp::detail::cuda {

/// Makes and keeps the plans of one problem.
struct PlanSource {
  const CudnnGraph& graph;
  const CudnnTarget& target;
  const CudnnRules& rules;
  const std::string& problem;
  PlanFiles& files;

  /// Returns the plan that an earlier process has kept under this name, if any.
  [[nodiscard]] std::optional<CudnnPlan> kept(const std::string& name) const {
    const auto text = files.find(key(name));
    if (!text) return {};
    auto plan = CudnnPlan::from_text(graph, target, *text, rules);
    if (!plan) files.unusable(key(name), "cuDNN refuses it");
    return plan;
  }
  [[nodiscard]] std::optional<CudnnPlan> made_and_kept(const CudnnCandidate& candidate) const {
    auto plan = CudnnPlan::make(graph, target, candidate, rules);
    if (plan) keep(candidate.name(), *plan);
    return plan;
  }
  /// Keeps the plan on disk if it has a compiled kernel.
  void keep(const std::string& name, const CudnnPlan& plan) const {
    if (const auto text = plan.text(); !text.empty()) files.keep(key(name), text);
  }

 private:
  /// Returns the key of a kept plan. It contains the rules, because they are not checked when the plan is used again.
  [[nodiscard]] std::string key(const std::string& name) const {
    return concat(problem, rules.deterministic ? ", deterministic" : "",
                  rules.full_precision ? ", full precision" : "", " by ", name);
  }
};

class CudnnPlans : public CudaCached {
 public:
  explicit CudnnPlans(Cuda& dev) : target_(dev.cudnn()) {}

  /// Runs the problem on `arguments`; returns false, having written nothing, if cuDNN cannot. build() makes the graph;
  /// `problem` is one line with everything on which the graph depends. Arguments that the graph reads and writes must
  /// be added with their size, because timing runs plans several times.
  [[nodiscard]] bool run(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                         const CudnnArguments& arguments, auto build) {
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
        chosen.refused_plans.insert(chosen.name);
        chosen.refusal = error.sentence();
        chosen.plan.reset();
        chosen = choose(dev, problem, rules, arguments, build, std::move(chosen));
      }
    }
    return false;
  }

  /// Returns whether run() has failed for the problem or refuse() was called. Callers then need not prepare arguments.
  [[nodiscard]] bool refused(const std::string& problem) const {
    const auto found = plans_.find(problem);
    return found != plans_.end() && !found->second.plan;
  }
  /// Excludes a problem for a reason outside cuDNN.
  void refuse(const std::string& problem, const std::string& why) {
    plans_.insert_or_assign(problem, Chosen{.refusal = why});
  }
  /// Returns all requests; refused_alone: only refused requests.
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
    std::string name{};     // name of the plan
    std::string refusal{};  // the reason, if there is no plan
    std::int64_t calls = 0;
    std::set<std::string> refused_plans{};  // names of plans that refused to run

    [[nodiscard]] Chosen with(std::optional<CudnnPlan> taken, std::string its_name) && {
      return {std::move(taken), std::move(its_name), {}, calls, std::move(refused_plans)};
    }
  };

  static void run(Cuda& dev, const CudnnPlan& plan, const CudnnArguments& arguments) {
    // The stream orders all calls, so they can share one workspace.
    if (plan.workspace_bytes() <= dev.workspace_bytes()) {
      plan.run(dev.cudnn(), arguments, dev.workspace());
      return;
    }
    const auto more = dev.allocate(plan.workspace_bytes());
    plan.run(dev.cudnn(), arguments, more.get());
  }

  [[nodiscard]] static std::string last_error() {
    char text[512] = "";
    cudnnGetLastErrorString(text, sizeof text);
    return text[0] == 0 ? "its engines do not run, or need too much memory" : text;
  }

  /// Chooses a plan. chosen: the previous choice, with the names of refused plans.
  Chosen choose(Cuda& dev, const std::string& problem, const CudnnRules& rules,
                const CudnnArguments& arguments, auto build, Chosen chosen) {
    CudnnGraph graph;
    try {
      graph = build();
    } catch (const CudaError& error) {
      chosen.refusal = error.sentence();
      return chosen;
    }
    auto& tuning = dev.cached<Tuning>();
    const PlanSource source{graph, target_, rules, problem, tuning.plans};
    const auto stored = tuning.choices.find(problem);
    const bool wants_stored = stored && !chosen.refused_plans.contains(*stored);
    if (wants_stored)
      if (auto plan = source.kept(*stored)) return std::move(chosen).with(std::move(plan), *stored);
    const auto all = candidates(graph, target_, rules);
    if (all.empty()) chosen.refusal = "it proposes no engine";
    if (wants_stored)
      for (const auto& one : all)
        if (one.name() == *stored)
          if (auto plan = source.made_and_kept(one))
            return std::move(chosen).with(std::move(plan), *stored);

    // Heuristics return duplicates.
    std::vector<const CudnnCandidate*> distinct;
    auto seen = chosen.refused_plans;
    for (const auto& one : all)
      if (seen.insert(one.name()).second) distinct.push_back(&one);
    if (!Tuning::may_time(dev)) {
      for (const auto* const one : distinct) {
        auto plan = source.kept(one->name());
        if (!plan) plan = source.made_and_kept(*one);
        if (plan) return std::move(chosen).with(std::move(plan), one->name());
        chosen.refusal = last_error();
      }
      return chosen;
    }

    float best_ms = std::numeric_limits<float>::infinity();
    std::size_t timed = 0, to_compile = Tuning::max_compiled;
    for (std::size_t next = 0; next < distinct.size() && timed < Tuning::max_candidates;) {
      std::vector<const CudnnCandidate*> part;
      std::size_t compiling = 0;
      for (; next < distinct.size() && timed + part.size() < Tuning::max_candidates; ++next) {
        if (distinct[next]->compiles()) {
          if (to_compile == 0) continue;
          if (compiling == to_compile) break;
          ++compiling;
        }
        part.push_back(distinct[next]);
      }
      const auto texts = compiled(dev, graph, part, rules);
      for (const auto* const one : part) {
        const auto name = one->name();
        const auto text = texts.find(name);
        auto plan = text == texts.end() ? CudnnPlan::make(graph, target_, *one, rules)
                                        : CudnnPlan::from_text(graph, target_, text->second, rules);
        if (!plan) {
          chosen.refusal = last_error();
          continue;
        }
        const auto ms = time(dev, *plan, arguments, chosen.refusal);
        if (!ms) continue;
        ++timed;
        to_compile -= one->compiles();
        if (*ms < best_ms) {
          chosen = std::move(chosen).with(std::move(plan), name);
          best_ms = *ms;
        }
      }
    }
    if (chosen.plan) {
      chosen.refusal.clear();
      tuning.choices.keep(problem, chosen.name);
      source.keep(chosen.name, *chosen.plan);
    }
    return chosen;
  }

  /// Returns the texts of compiled plans by name. Several threads compile them for a description of the device, because
  /// a handle serves only one thread at a time. The caller makes the plans that are missing here.
  std::map<std::string, std::string> compiled(Cuda& dev, const CudnnGraph& graph,
                                              std::span<const CudnnCandidate* const> wanted,
                                              const CudnnRules& rules) {
    std::set<std::string> names;
    for (const auto* const one : wanted)
      if (one->compiles()) names.insert(one->name());
    std::map<std::string, std::string> texts;
    if (dev.host_threads() == 1 || names.size() < 2) return texts;
    try {
      if (!described_) described_ = CudnnTarget::described(target_.handle());
      std::vector<CudnnCandidate> tasks;
      for (auto& one : candidates(graph, *described_, rules))
        if (names.erase(one.name()) > 0) {
          texts.emplace(one.name(), "");
          tasks.push_back(std::move(one));
        }
      const auto count = static_cast<int>(tasks.size());
      ThreadPool threads(std::clamp(count, 1, dev.host_threads()));
      threads.run(count, [&](std::int64_t at) {
        check_cuda(cudaSetDevice(dev.number()), "cudaSetDevice");
        const auto& task = tasks[as_size(at)];
        if (const auto plan = CudnnPlan::make(graph, *described_, task, rules))
          texts.at(task.name()) = plan->text();
      });
    } catch (const CudaError&) {  // then the caller compiles each plan
    }
    std::erase_if(texts, [](const auto& one) { return one.second.empty(); });
    return texts;
  }
  /// Returns the time of a plan, in ms; nullopt if memory is short or the plan does not start.
  static std::optional<float> time(Cuda& dev, const CudnnPlan& plan,
                                   const CudnnArguments& arguments, std::string& why) {
    try {
      std::vector<std::shared_ptr<std::byte>> scratch;
      const auto timed = arguments.with_updated_at(
          [&](std::size_t bytes) { return scratch.emplace_back(dev.allocate(bytes)).get(); });
      return shortest_ms(dev.stream(), [&] { run(dev, plan, timed); });
    } catch (const Error& error) {
      why = error.sentence();
      return {};
    }
  }

  CudnnTarget target_;
  std::optional<CudnnTarget> described_;  // a description of the same device
  std::map<std::string, Chosen> plans_;
};

}  // namespace dhp::detail::cuda
