#include "options.hpp"

#include <charconv>
#include <cmath>
#include <limits>

namespace examples {

Elastic Elastic::parse(const std::string& text) {
  const auto colon = text.find(':');
  const auto number = [&](const std::string& digits, int otherwise) {
    if (digits.empty()) return otherwise;
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    return whole ? value : 0;
  };
  constexpr int any = std::numeric_limits<int>::max();
  const Elastic elastic{number(text.substr(0, colon), 0),
                        colon == text.npos ? any : number(text.substr(colon + 1), any)};
  dhp::check(elastic.least >= 1 && elastic.most >= elastic.least, "--elastic ", text,
             ": give the least and the most replicas, such as 2:4, or 2: for any number from 2 on");
  return elastic;
}

void RunOptions::check_decay(std::int64_t total_steps) const {
  dhp::check(
      learning_rate.decay != dhp::Decay::step || total_steps >= 3,
      "--lr-decay step drops the rate at a third and two thirds of the run, but the run has ",
      total_steps, total_steps == 1 ? " step" : " steps",
      "; give 3 or more by --steps or --epochs");
}

std::int64_t RunOptions::total_steps(const dhp::Batching& batching) const {
  if (steps > 0) return steps;
  const auto passes = epochs > 0 ? epochs : 1;
  const auto per_epoch = static_cast<double>(batching.steps_per_epoch());
  constexpr double most = 1e15;  // beyond that a double does not count every step
  dhp::check(passes * per_epoch <= most, "--epochs ", epochs, " of ", batching.steps_per_epoch(),
             " steps are more steps than can be counted; choose fewer");
  const auto whole = std::floor(passes);
  return batching.steps_until(static_cast<std::int64_t>(whole)) +
         static_cast<std::int64_t>(std::ceil((passes - whole) * per_epoch));
}

dhp::TrainingOptions RunOptions::training(std::int64_t total_steps) const {
  check_decay(total_steps);  // those that --epochs make are known only now
  dhp::TrainingOptions made{.layout = mesh,
                            .store = {.compute = precision,
                                      .order_free = deterministic,
                                      .seed = seed,
                                      .initialize = load.empty() || begins_anew(),
                                      .sharding = sharding,
                                      .state_on_host = state_on_host},
                            .pipeline = pipeline,
                            .reducer = reducer,
                            .optimizer = optimizer,
                            .trainer = {.learning_rate = learning_rate, .clip = clip}};
  made.trainer.learning_rate.total_steps = total_steps;
  made.trainer.learning_rate.step_every = total_steps / 3;
  return made;
}

std::optional<dhp::ProcessRank> RunOptions::process() const {
  auto flags = rank_flags;
  flags.needs_master = store.empty();
  auto me = dhp::ProcessRank::from_environment(flags);
  if (!me || (me->size == 1 && !elastic)) return std::nullopt;
  dhp::check(elastic || me->size == mesh.size(), "there are ", me->size, " processes (",
             me->launcher, "), but a layout of ", mesh, " needs ", mesh.size(),
             "; start as many, or choose other axes");
  dhp::check(store.empty() || me->job != dhp::ProcessRank{}.job,
             "jobs that share etcd need names: set DHP_JOB to the same on all ranks of this one");
  return me;
}
bool RunOptions::speaks() const {
  const auto me = process();
  return !me || me->rank == 0;
}

}  // namespace examples
