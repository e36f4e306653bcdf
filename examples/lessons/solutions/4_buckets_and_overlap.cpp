// Solutions of lesson 4. 1: the number of buckets. 2: when each gradient is ready.
#include "toy.hpp"

#include <string>

using toy::Dev;
constexpr std::size_t sizes[] = {4, 256, 1024, 8192};

// A user-written reducer: notes which gradients are ready, and lets another reducer sum them.
struct Recording {
  std::vector<std::string>* ready;
};
class RecordingReducer {
 public:
  RecordingReducer(Dev& dev, dhp::ParameterStore<Dev>& store, dhp::Comm<Dev> group,
                   Recording options)
      : store_(&store), inner_(dev, store, std::move(group), {.bytes = 1024}), options_(options) {}
  void ready(dhp::Range range) {
    for (const auto& parameter : store_->parameters())
      if (range.first <= parameter->range.first && parameter->range.last <= range.last)
        options_.ready->push_back(parameter->spec.name);
    inner_.ready(range);
  }
  void finish() { inner_.finish(); }

 private:
  dhp::ParameterStore<Dev>* store_;
  dhp::BucketedReducer<Dev> inner_;
  Recording options_;
};
RecordingReducer make_reducer(Dev& dev, dhp::ParameterStore<Dev>& store, dhp::Comm<Dev> group,
                              Recording options) {
  return {dev, store, std::move(group), options};
}

int main() {
  // Exercise 1. A bucket ends once it has the requested number of bytes, and at least one parameter.
  const auto buckets = toy::on_each_rank(2, [](dhp::Comm<Dev> world) {
    Dev dev;
    dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
    dhp::ParameterList<Dev> parameters;
    for (auto& layer : toy::network(build).layers) layer.parameters(parameters);
    dhp::ParameterStore<Dev> store(dev, parameters, {});
    std::vector<std::size_t> numbers;
    for (const auto bytes : sizes)
      numbers.push_back(dhp::BucketedReducer<Dev>(dev, store, world, {.bytes = bytes}).buckets());
    return numbers;
  })[0];
  for (std::size_t at = 0; at < std::size(sizes); ++at)
    std::printf("buckets of at least %4zu bytes: %zu\n", sizes[at], buckets[at]);
  // 8 parameters; 1,248 gradients of 4 bytes.
  const bool correct = buckets == std::vector<std::size_t>{8, 4, 3, 1};

  // Exercise 2.
  const auto ready = toy::on_each_rank(2, [](dhp::Comm<Dev> world) {
    Dev dev;
    std::vector<std::string> names;
    const auto all = toy::batches(dev, 2);
    const dhp::TrainingOptionsOf<std::variant<Recording>, dhp::OptimizerChoice> options{
        .layout = {.data = 2}, .reducer = Recording{&names}};
    dhp::TrainingRun run(dev, world, options, toy::network, all.front());
    (void)run.step(all);
    return names;
  })[0];
  std::printf("ready, in this order:");
  for (const auto& name : ready) std::printf(" %s", name.c_str());
  std::printf("\n");
  return toy::status(correct && ready.front().starts_with("last") &&
                     ready.back().starts_with("first"));
}
