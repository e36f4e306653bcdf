// Before a run begins, its ranks compare what must be the same on all of them: options, optimizer, parameters, data.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/data/step_source.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>

#include <string>
#include <vector>

namespace dhp::detail {

struct Fact {
  const char* what;
  std::string value;
};
/// The options that all ranks of a run must share. choices: names the types of reducer and optimizer.
template <class Dev>
[[nodiscard]] std::vector<Fact> facts(const MeshShape& layout, const ParameterStoreOptions& store,
                                      const PipelineOptions& pipeline,
                                      const TrainerOptions& trainer, const std::string& choices) {
  const auto& rate = trainer.learning_rate;
  const auto scale = trainer.loss_scale.value_or(LossScaleOptions{.initial = 0});
  const auto& sharding = store.sharding;
  return {{"seed", concat(store.seed)},
          {"layout", concat(layout)},
          {"precision", concat(store.compute)},
          {"kind of sums (deterministic)",
           concat(store.deterministic, " ", store.tensor_groups, " ", store.context_groups)},
          {"sharding", concat(static_cast<int>(sharding.stage), " ", sharding.redundancy)},
          {"schedule", concat(pipeline.schedule.name(), " ", pipeline.chunks)},
          {"kind of reducer or optimizer", choices},
          {"learning rate",
           concat(rate.own ? rate.at(1) : rate.peak, " ", rate.final, " ", rate.warmup_steps, " ",
                  rate.total_steps, " ", static_cast<int>(rate.decay), " ", rate.power, " ",
                  rate.step_every, " ", rate.step_factor)},
          {"limit of gradients", concat(trainer.clip, " ", trainer.spike)},
          {"momentum of batch norms", concat(trainer.batch_norm_momentum)},
          {"loss scale", concat(scale.dynamic, " ", scale.initial, " ", scale.growth, " ",
                                scale.growth_interval, " ", scale.largest)}};
}
/// Returns dev. Throws Error if ranks differ in a fact. Collective. Skipped with MetaComm, which has no other ranks.
template <class Dev>
Dev& check_alike(Dev& dev, Comm<Dev>& world, const std::vector<Fact>& mine) {
  if constexpr (has_data<Dev>) {
    if (world.size() == 1 || world.transport() == "none") return dev;
    std::vector<double> hashes;
    for (const auto& fact : mine) hashes.push_back(static_cast<double>(fnv1a(fact.value) >> 11));
    const auto all = gather(dev, world, hashes);
    for (std::size_t at = 0; at < all.size(); ++at)
      check(all[at] == all[at % mine.size()], "rank ", at / mine.size(), " has another ",
            mine[at % mine.size()].what, " than rank 0; all ranks of a run need the same");
  }
  return dev;
}
/// Throws Error if ranks read other data than rank 0. Collective.
template <class Dev>
void check_same_data(Dev& dev, Comm<Dev>& world, const StepSource<Dev>& data) {
  if constexpr (has_data<Dev>) {
    if (world.size() == 1 || world.transport() == "none") return;
    auto own = data.in_common();
    if (data.steps() > 0) own += concat(own.empty() ? "" : ", ", pluralize(data.steps(), "step"));
    const auto all = gather_texts(dev, world, own.empty() ? "steps without end" : own);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      check(all[rank] == all[0], "rank ", rank, " reads ", all[rank], ", and rank 0 ", all[0],
            "; all ranks of a run need the same data");
  }
}

}  // namespace dhp::detail
