// Makes the input of zero.py from a run of train_bert: the batches, which PyTorch then trains on, and the memory that a
// replica holds between steps at each ZeRO stage.
//   bench_zero FILE OPTIONS   with train_bert's OPTIONS; writes the batches to FILE, prints one line for each stage
#include <dhp/data/loader.hpp>
#include <dhp/train/safetensors.hpp>
#include <examples/bert/model.hpp>
#include <examples/bert/vocabulary.hpp>
#include <examples/report/progress.hpp>
#include <examples/run/training.hpp>

#include <cstdio>
#include <string>

namespace {

using namespace dhp;
using examples::Dev;

/// Writes the side inputs (bert/masked_lm.hpp) as tensors STEP.MICRO_BATCH.NAME, counted from 0.
void write_batches(Dev& dev, const examples::BertOptions& options, const examples::TextData& data,
                   const std::string& path) {
  const auto& run = options.run;
  Loader<Dev, examples::AnyBatcher> loader(dev, data.train,
                                           {.global_batch = run.global_batch,
                                            .micro_batch = run.micro_batch,
                                            .reader = {.seed = run.store.seed},
                                            .threads = 0});
  SafeTensorsWriter writer;
  for (std::int64_t step = 0; step < run.steps; ++step) {
    const auto result = loader.next();
    for (std::size_t at = 0; at < result.batches.size(); ++at)
      for (const auto& [name, tensor] : result.batches[at].side) {
        const auto view = tensor.view();
        writer.add(concat(step, ".", at, ".", name), view.dtype(), {view.count()},
                   {view.bytes(), view.bytes() + view.size_bytes()});
      }
  }
  writer.write(path);
}

/// Prints the bytes of weights, gradients and optimizer state of one replica, with padding.
void print_held(Dev& dev, const examples::BertOptions& options, const examples::BertConfig& config,
                ZeroStage stage) {
  auto training = options.run.training(options.run.steps.value_or(0));
  training.store.sharding.stage = stage;
  ModelBuilder<Dev> build(Comm<Dev>{});
  const auto parameters = examples::bert(build, config).parameters();
  ParameterStore<Dev> store(dev, parameters, training.store, {0, options.run.layout.data});
  const Norms<Dev> norms({}, {}, static_cast<int>(parameters.size()));
  const auto optimizer = make_optimizer(dev, store, norms, training.optimizer);

  std::size_t weights = 0, state = 0;
  auto gradients = std::as_const(store).gradients().size_bytes();
  for (const auto& parameter : store.parameters())
    if (parameter->range.last <= store.replicated_range().last)
      weights += parameter->value.size_bytes();
  for (const auto& bucket : store.buckets()) {
    weights += stage == ZeroStage::weights ? bucket->own_weights().size_bytes()
                                           : bucket->all_weights().size_bytes();
    for (const auto& summand : bucket->summands(bucket->range())) gradients += summand.size_bytes();
  }
  for (const auto& kind : optimizer->state()) state += kind.buffer->size_bytes();
  std::printf("%d %zu %zu %zu\n", static_cast<int>(stage), weights, gradients, state);
}

int look(const std::string& path, const examples::BertOptions& options) {
  Dev dev;
  const auto data = examples::load_text(options, false);
  write_batches(dev, options, data, path);
  const auto& config = data.bert.config;
  for (const auto stage :
       {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights})
    print_held(dev, options, config, stage);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string path = argv[1];
  argv[1] = argv[0];
  const auto parsed = examples::parse_bert(argc - 1, argv + 1, false);
  if (parsed.exit_status) return *parsed.exit_status;
  return examples::exit_status_of([&] { return look(path, parsed.options); });
}
