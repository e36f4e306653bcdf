// Measures the seconds that initial values of BERT-large take, in fp32. A store makes them on several threads, many at
// once; the peer makes them one by one on one thread, in double. memory_s: the store's zeroed weights and gradients.
#include <bench/program.hpp>
#include <dhp/cpu.hpp>
#include <examples/bert/model.hpp>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace {

using namespace dhp;

ParameterList<Cpu> bert_large() {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  return examples::bert(build, examples::bert_preset("large")).parameters();
}

double one_by_one(const ParameterList<Cpu>& parameters) {
  double sum = 0;
  for (const auto& parameter : parameters) {
    const RandomStream stream{0, detail::InitialValues<Cpu>::series, parameter->use};
    const auto count = parameter->spec.local_shape().count();
    for (std::int64_t at = 0; at < count; ++at) sum += parameter->spec.init(stream, at);
  }
  return sum;
}

void measure(int threads) {
  Cpu dev({.threads = threads});
  const auto parameters = bert_large();
  std::optional<ParameterStore<Cpu>> store;
  const double memory_s = bench::seconds_of(
      [&] { store.emplace(dev, parameters, ParameterStoreOptions{.initialize = false}); });
  const double values_s = bench::seconds_of([&] {
    detail::InitialValues<Cpu> values(dev, store->options().seed);
    for (const auto& one : store->parameters())
      values.write(*one, 0, one->value.as({one->range.size()}));
  });
  double sum = 0;
  const double peer_s = bench::seconds_of([&] { sum = one_by_one(store->parameters()); });
  std::printf(
      "{\"elements\": %lld, \"threads\": %d, \"memory_s\": %.2f, \"values_s\": %.2f, "
      "\"one_by_one_s\": %.2f, \"ratio\": %.2f, \"sum\": %.9g}\n",
      static_cast<long long>(store->size()), threads, memory_s, values_s, peer_s, peer_s / values_s,
      sum);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc == 2, "bench_initial_values THREADS",
                         [&] { measure(std::atoi(argv[1])); });
}
