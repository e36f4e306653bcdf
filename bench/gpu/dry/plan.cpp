// A dry trainer: the command line, data and model of a trainer. Instead of training, it does one step on Cuda over a
// dry CUDA and prints as JSON the launches and the calls of libraries. It is a single rank, DHP_DRY_RANK, of the
// layout. It replaces the trainers' run/training.cpp. All micro-batches of the step must fit into one, since tokens are
// counted in the first.
#include <bench/gpu/dry/ledger.hpp>
#include <dhp/comm/meta_comm.hpp>
#include <examples/run/training.hpp>

#include <nlohmann/json.hpp>

#include <bit>
#include <cstdlib>
#include <iostream>
#include <numeric>

namespace examples {
namespace {

struct Total {
  int launches = 0;
  double bytes = 0, flop = 0;
};

/// Tells the ledger each weight's bytes, so that it finds them by a launch's address.
void name_weights(dhp::ParameterStore<Dev>& store) {
  for (const auto& parameter : store.parameters()) {
    dry::ledger().name_part(parameter->value.bytes(), parameter->value.size_bytes());
    dry::ledger().name_part(parameter->gradient.bytes(), parameter->gradient.size_bytes());
  }
}

/// The tokens of a batch, and their shares of the rounded attention problem; none for images.
struct Tokens {
  double count = 0, rows = 0, share_of_rows = 1, share_of_pairs = 1;
  explicit Tokens(const dhp::HostBatch& batch) {
    for (const auto& [name, values] : batch.side) {
      if (name == "token_ids") rows = static_cast<double>(values.shape().count());
      if (name != "lengths") continue;
      double pairs = 0;
      const auto lengths = values.values<std::int32_t>();
      for (const double length : lengths) {
        count += length;
        pairs += length * length;
      }
      const auto longest = static_cast<double>(batch.rows_per_sample);
      const auto samples = static_cast<double>(std::bit_ceil(lengths.size()));
      share_of_rows = count / (samples * longest);
      share_of_pairs = pairs / (samples * longest * longest);
    }
  }
};

dhp::Comm<Dev> world_of(const dhp::MeshShape& layout) {
  if (layout.size() == 1) return {};
  const char* const rank = std::getenv("DHP_DRY_RANK");
  return dhp::Comm<Dev>::of(
      dhp::MetaComm<Dev>::world(layout, rank == nullptr ? 0 : std::atoi(rank)));
}

}  // namespace

int run_with_options(const RunOptions&, std::optional<int> exit_status,
                     const std::function<int(ConnectedRank* met)>& load_and_train) {
  return exit_status ? *exit_status : exit_status_of([&] { return load_and_train(nullptr); });
}

int run_training(const TrainingSetup& setup) {
  const auto& options = setup.options;
  dry::begin();
  auto& ledger = dry::ledger();
  // Each tensor is a separate request to the allocator, so that sizes are exact.
  Dev dev({.deterministic = options.store.deterministic,
           .tf32 = options.tf32,
           .library_dropout = options.library_dropout,
           .cublas_sms = options.cublas_sms,
           .allocator = {
               .allocate = [&](std::size_t bytes, cudaStream_t) { return ledger.allocate(bytes); },
               .free = [&](std::byte* data, std::size_t, cudaStream_t) { ledger.free(data); }}});
  const auto training = options.training(options.steps.value_or(0));
  dhp::TrainingRun<Dev> run(dev, world_of(training.layout), training, setup.make_model,
                            dhp::example_batch(dev, setup.train, options.micro_batch));
  name_weights(run.store());
  const auto samples = setup.train.repeated(options.global_batch);
  dhp::Loader input(dev, samples,
                    {.global_batch = options.global_batch,
                     .micro_batch = options.micro_batch,
                     .shuffle = false,
                     .threads = 0,
                     .same_shapes = setup.same_shapes});
  run.read(input);
  const auto batches = input.next();
  std::vector<std::int64_t> first(static_cast<std::size_t>(options.micro_batch));
  std::iota(first.begin(), first.end(), 0);
  const Tokens tokens(samples.collate(first, 0));
  ledger.attention_rows = tokens.share_of_rows;
  ledger.attention_pairs = tokens.share_of_pairs;
  // The first step chooses plans; the second one is like all later steps.
  for (int step = 0; step < 2; ++step) {
    ledger.clear();
    (void)run.trainer().start(batches);
  }
  std::map<std::string, Total> totals;
  for (const auto& launch : ledger.launches()) {
    auto& total = totals[launch.name];
    ++total.launches;
    total.bytes += launch.bytes;
    total.flop += launch.flop;
  }
  nlohmann::json out = {{"samples", options.global_batch},
                        {"tokens", tokens.count},
                        {"rows", tokens.rows},
                        {"held_bytes", ledger.max_held_bytes()},
                        {"launches", nlohmann::json::array()}};
  for (const auto& [name, total] : totals)
    out["launches"].push_back({{"name", name},
                               {"launches", total.launches},
                               {"bytes", total.bytes},
                               {"flop", total.flop}});
  for (const auto& use : dhp::library_use(dev))
    out["problems"].push_back({{"name", use.name}, {"problem", use.problem}, {"calls", use.calls}});
  std::cout << out.dump(1) << "\n";
  return 0;
}

}  // namespace examples
