// dump_compressed writes JSON for compressed.py: the gradients of two replicas over some steps, and the sums of
// compressing reducers.
#include <dhp/cpu.hpp>
#include <tests/extra/compressed_reducer.hpp>

namespace {

using Cases = CompressedCases<Cpu>;
constexpr int replicas = 2, steps = 6;

void print(const char* name, const Values& values, const char* end) {
  std::printf("\"%s\": [", name);
  for (std::size_t at = 0; at < values.size(); ++at)
    std::printf("%s%.9g", at == 0 ? "" : ",", values[at]);
  std::printf("]%s", end);
}

void print_run(const char* name, const ReducerChoice& choice, const char* end) {
  const auto run = Cases::run(replicas, choice, DType::f32, Cases::plain_steps(steps));
  std::printf("\"%s\": {", name);
  for (int step = 0; step < steps; ++step)
    for (const int parameter : {0, 1, 2, 5})
      print(concat("sum ", step, " ", parameter).c_str(),
            run.sums[0][static_cast<std::size_t>(step)][static_cast<std::size_t>(parameter)], ", ");
  for (int replica = 0; replica < replicas; ++replica)
    for (std::size_t matrix = 0; matrix < 3; ++matrix)
      print(concat("unsent ", replica, " ", Cases::matrices[matrix]).c_str(),
            run.unsent[static_cast<std::size_t>(replica)][matrix],
            replica + 1 == replicas && matrix == 2 ? "" : ", ");
  std::printf("}%s", end);
}

}  // namespace

int main() {
  Cpu dev;
  const auto store = Cases::make_store(dev);
  std::printf("{\"replicas\": %d, \"steps\": %d, ", replicas, steps);
  for (const int parameter : {0, 1, 2, 5}) {
    const auto& state = *store.parameters()[static_cast<std::size_t>(parameter)];
    Values shape;
    for (int dim = 0; dim < state.spec.shape.rank(); ++dim)
      shape.push_back(static_cast<double>(state.spec.shape[dim]));
    print(concat("shape ", parameter).c_str(), shape, ", ");
    for (int step = 0; step < steps; ++step)
      for (int replica = 0; replica < replicas; ++replica) {
        Values values;
        for (std::size_t at = 0; at < static_cast<std::size_t>(state.range.size()); ++at)
          values.push_back(static_cast<float>(Cases::drawn(replica, step, parameter, at)));
        print(concat("gradient ", replica, " ", step, " ", parameter).c_str(), values, ", ");
      }
    // The random numbers that PowerSgd documents, with a rank that is large enough for all matrices.
    const RandomStream random{.seed = mix(5), .use = state.use};
    Values normal;
    for (std::size_t at = 0; at < 64; ++at) normal.push_back(static_cast<float>(random.normal(at)));
    print(concat("normal ", parameter).c_str(), normal, ", ");
  }
  print_run("powersgd 1", PowerSgd{.rank = 1}, ", ");
  print_run("powersgd 3", PowerSgd{.rank = 3}, "}\n");
}
