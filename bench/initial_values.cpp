// Seconds until BERT-large's parameters have their initial values, in fp32: the store's own, on several threads, and one
// by one on one thread, in double, as a peer. The first also allocates them, and zeroed gradients.
// Usage: bench_initial_values THREADS
#include <dhp/cpu.hpp>
#include <examples/bert/model.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

namespace {

using namespace dhp;

template <class Body>
double seconds_of(Body body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

ParameterList<Cpu> bert_large() {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto model = examples::bert(build, examples::bert_preset("large"));
  ParameterList<Cpu> parameters;
  for (const auto& layer : model.layers) layer.parameters(parameters);
  model.loss.parameters(parameters);
  return parameters;
}

double one_by_one(const ParameterList<Cpu>& parameters) {
  std::set<const ParameterState<Cpu>*> seen;
  double sum = 0;
  for (const auto& parameter : parameters) {
    if (!seen.insert(parameter.get()).second) continue;
    const RandomStream stream{0, InitialValues<Cpu>::step, parameter->use};
    const auto count = parameter->spec.local_shape().count();
    for (std::int64_t at = 0; at < count; ++at) sum += parameter->spec.init(stream, at);
  }
  return sum;
}

void measure(int threads) {
  Cpu dev({.threads = threads});
  std::int64_t elements = 0;
  const auto store_s = [&](bool initialize) {
    const auto parameters = bert_large();
    std::optional<ParameterStore<Cpu>> store;
    const auto taken =
        seconds_of([&] { store.emplace(dev, parameters, StoreOptions{.initialize = initialize}); });
    elements = store->size();
    return taken;
  };
  const double without_s = store_s(false);
  const double with_s = store_s(true);
  double sum = 0;
  const double peer_s = seconds_of([&] { sum = one_by_one(bert_large()); });
  std::printf(
      "{\"elements\": %lld, \"threads\": %d, \"store_s\": %.2f, \"without_values_s\": %.2f, "
      "\"one_by_one_s\": %.2f, \"ratio\": %.2f, \"sum\": %.9g}\n",
      static_cast<long long>(elements), threads, with_s, without_s, peer_s, peer_s / with_s, sum);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::atoi(argv[1]) < 1) {
    std::fprintf(stderr, "usage: bench_initial_values THREADS\n");
    return 2;
  }
  measure(std::atoi(argv[1]));
  return 0;
}
