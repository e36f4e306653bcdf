#include <dhp/train/weight_files.hpp>

#include "options.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string_view>

namespace examples {

dhp::LayoutRules parse_elastic(const std::string& text) {
  const auto colon = text.find(':');
  const auto number = [](const std::string& digits, int otherwise) {
    return digits.empty() ? otherwise : dhp::detail::number_of<int>(digits).value_or(0);
  };
  constexpr int any = std::numeric_limits<int>::max();
  const dhp::LayoutRules result{
      .min_replicas = number(text.substr(0, colon), 0),
      .max_replicas = colon == text.npos ? any : number(text.substr(colon + 1), any)};
  dhp::check(result.min_replicas >= 1 && result.max_replicas >= result.min_replicas, "--elastic ",
             text,
             ": give the least and the most replicas, such as 2:4, or 2: for any number from 2 on");
  return result;
}

void RunOptions::check_ranks() const {
  constexpr int max_ranks = 1024;  // threads of one process
  dhp::check(layout.size() <= max_ranks || process(), "a layout of ", layout, " has more than the ",
             max_ranks, " ranks that one process can start as threads");
}
void RunOptions::check_outside(const std::string& folder, const std::string& test_data,
                               const std::string& cache) const {
  std::error_code error;
  const auto place = [&](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  };
  for (const auto& [option, path] : {std::pair{"--test-data", test_data},
                                     {"--save", save},
                                     {"--export", export_to},
                                     {"--metrics", metrics},
                                     {"--export-adapter", tuning.export_adapter},
                                     {"--flight-record", flight_record},
                                     {"--trace", trace},
                                     {"--trace-values", trace_values},
                                     {"--tensorboard", tensorboard},
                                     {"--text-cache", cache}}) {
    const auto way = place(path).lexically_relative(place(folder));
    // A part ".." leads out of the folder, and hidden files are not read.
    const bool unread = way.empty() || std::any_of(way.begin(), way.end(), [](const auto& part) {
                          return part != "." && part.string().starts_with('.');
                        });
    // All of the training data may also be the test data.
    const bool same_data = way == "." && option == std::string_view("--test-data");
    dhp::check(path.empty() || unread || same_data, option, " ", path, " lies in --data ", folder,
               ", all of whose files are training data; choose another place");
  }
}
bool RunOptions::loads_only_weights() const { return dhp::WeightFiles::are_at(load); }

bool RunOptions::records_steps(bool same_shapes) const {
  if (elastic) return false;                // ranks agree in the middle of each step
  if (!trace_values.empty()) return false;  // values are copied to the host
  if (!trace.empty()) return false;         // a recorded step would hide its times
  if (!same_shapes && !resident()) return false;
  if (layout.size() == 1) return cuda_graphs.value_or(true);
  // Not with check_collectives, for which the host compares the ranks' calls. Not for several GPUs in one process,
  // whose CUDA graphs may wait for each other.
  return cuda_graphs.value_or(false) && process() && !check_collectives;
}

void RunOptions::finish_synthetic() {
  if (!synthetic_gradients) return;
  const bool usual = pipeline.schedule.name() == dhp::OneForwardOneBackward::name;
  for (const auto& [bad, reason] :
       {std::pair{axes == "auto", "needs --pipeline-parallel instead of --axes auto"},
        {layout.pipeline == 1,
         "needs --pipeline-parallel 2 or more; to load a run that had them, give "
         "--synthetic-gradients=false"},
        {!usual, "has a schedule of its own: leave out --schedule"},
        {store.deterministic,
         "does not work with --deterministic, since the results depend on where the model is cut"},
        {store.sharding.stage != dhp::ZeroStage::none, "does not work with --zero"},
        {elastic.has_value(),
         "does not work with --elastic: predictors would leave with lost ranks"},
        {cuda_graphs.value_or(false),
         "has steps that --cuda-graphs cannot record: leave one of them out"},
        {store.compute != dhp::accumulation_type(store.compute),
         "is for --precision fp32 or fp64"}})
    dhp::check(!bad, "--synthetic-gradients ", reason);
  pipeline.schedule = dhp::SyntheticGradients::schedule();
}

void RunOptions::check_context() const {
  if (layout.context == 1) return;
  for (const auto& [bad, name] :
       {std::pair{elastic.has_value(), "--elastic: its axis stays as it is"},
        {synthetic_gradients.has_value(), "--synthetic-gradients"},
        {cuda_graphs.value_or(false), "--cuda-graphs: its ranks read lengths on the host"},
        {!trace_values.empty(), "--trace-values: no rank has all of a micro-batch"},
        {verify_every > 0, "--verify-every: its ranks do not compute each other's rows"},
        {is_late(), "a --reducer with which replicas step alone"}})
    dhp::check(!bad, "--context-parallel is not for ", name, "; leave out one of the two");
}

void RunOptions::check_decay(std::int64_t total_steps) const {
  dhp::check(
      trainer.learning_rate.decay != dhp::Decay::step || total_steps >= 3,
      "--lr-decay step drops the rate at a third and two thirds of the run, but the run has ",
      dhp::detail::pluralize(total_steps, "step"), "; give 3 or more by --steps or --epochs");
}

std::vector<std::string> RunOptions::warnings(std::int64_t total_steps) const {
  auto found = idle;
  if (total_steps > 0 && trainer.learning_rate.warmup_steps > total_steps)
    found.push_back(
        dhp::concat("--warmup ", trainer.learning_rate.warmup_steps, " is longer than this run of ",
                    dhp::detail::pluralize(total_steps, "step"),
                    ": the learning rate does not reach --lr ", trainer.learning_rate.peak));
  if (pipeline.schedule.name() == dhp::Interleaved::name && pipeline.chunks == 1)
    found.push_back(
        "--schedule interleaved with one part of the model per stage is 1f1b; give "
        "--pipeline-chunks 2 or more");
  const auto micro_batches = global_batch / micro_batch;
  if (micro_batches < layout.data)
    found.push_back(
        dhp::concat("a step has ", dhp::detail::pluralize(micro_batches, "micro-batch"), " for ",
                    layout.data, " replicas, so that ", layout.data - micro_batches,
                    " of them do nothing; choose a smaller --micro-batch or --data-parallel"));
  if (!sums_all() && layout.replicas() == 1)
    found.push_back(dhp::concat("--reducer ", reducer_name, " does nothing with one replica"));
  return found;
}

std::vector<std::string> RunOptions::not_saved() const {
  std::vector<std::string> found;
  if (const auto* delayed = std::get_if<dhp::Delayed>(&reducer); delayed && delayed->steps > 0)
    found.push_back(dhp::concat(
        "gradients that were under way are not saved: the first ", delayed->steps,
        delayed->steps == 1 ? " step has none and is" : " steps have none and are", " skipped"));
  if (const auto* local = std::get_if<dhp::LocalSgd>(&reducer)) {
    if (layout.data > 1)
      found.push_back("only the first replica's optimizer state is saved; all go on from it");
    if (local->outer_momentum > 0)
      found.push_back("the outer momentum is not saved and begins anew");
  }
  if (!sums_all() && !is_late() && layout.data > 1)
    found.push_back(dhp::concat("checkpoints do not have what --reducer ", reducer_name,
                                " has not sent yet; its memory begins anew"));
  if (synthetic_gradients)
    found.push_back("the predictors of synthetic gradients are not saved and begin anew");
  return found;
}

std::int64_t RunOptions::total_steps(const dhp::Batching& batching) const {
  if (evaluate_only) return 0;
  if (steps) return *steps;
  const auto passes = epochs > 0 ? epochs : 1;
  const auto per_epoch = static_cast<double>(batching.steps_per_epoch());
  constexpr double most = 1e15;  // a double counts every step up to here
  dhp::check(passes * per_epoch <= most, "--epochs ", epochs, " of ", batching.steps_per_epoch(),
             " steps are more steps than can be counted; choose fewer");
  const auto whole = std::floor(passes);
  constexpr double rounding = 1e-6;  // 1.1 - 1 is above 0.1
  const auto rest = std::ceil((passes - whole) * per_epoch - rounding);
  return batching.steps_until(static_cast<std::int64_t>(whole), static_cast<std::int64_t>(rest));
}

dhp::AllTrainingOptions RunOptions::training(std::int64_t total_steps) const {
  if (total_steps > 0) check_decay(total_steps);  // the steps of --epochs are known only now
  dhp::AllTrainingOptions result(*this);
  result.store.initialize = load.empty() || loads_only_weights();
  auto& rate = result.trainer.learning_rate;
  rate.total_steps = total_steps;
  rate.step_every = std::max<std::int64_t>(1, (total_steps - rate.warmup_steps + 2) / 3);
  return result;
}

std::optional<dhp::ProcessRank> RunOptions::process() const {
  auto flags = rank_flags;
  flags.needs_master = etcd.empty();
  auto me = dhp::ProcessRank::from_environment(flags);
  if (!me || (me->size == 1 && !elastic)) return std::nullopt;
  dhp::check(etcd.empty() || me->job != dhp::ProcessRank{}.job,
             "jobs that share etcd need names: set DHP_JOB to the same on all ranks of this job");
  return me;
}
std::string RunOptions::layout_mismatch(const dhp::ProcessRank& me) const {
  if (elastic || me.size == layout.size()) return {};
  return dhp::detail::or_unset(
      dhp::concat("there are ", me.size, " processes (", me.launcher, "), but a layout of ", layout,
                  " needs ", layout.size(), "; start as many, or choose other axes"),
      me.variables);
}
bool RunOptions::prints() const {
  const auto me = process();
  return !me || me->rank == 0;
}

}  // namespace examples
