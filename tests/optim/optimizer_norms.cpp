// Norms count each element of the model once, in any layout.
#include <dhp/comm/launch.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/cpu.hpp>
#include <dhp/optim/optimizer.hpp>
#include <tests/support/tensors.hpp>

namespace {

/// "split" is 0, 1, 2, ...; "whole" is all 3 on every tensor rank; "buffer" is no trained parameter.
ParameterList<Cpu> describe(ModelBuilder<Cpu>& build) {
  const ParameterSpec rows{.name = "split", .shape = {5, 2}};
  return {build.parameter(split(rows, 0, build.tensor.size(), build.tensor.rank())),
          build.parameter({.name = "whole", .shape = {4}, .init = constant(3)}),
          build.parameter({.name = "buffer", .shape = {4}, .init = constant(100), .buffer = true})};
}

}  // namespace

TEST_CASE("norms: split parts are added, replicas and tied weights count once, buffers never") {
  for (const auto& shape : {MeshShape{}, {.tensor = 2}, {.tensor = 3, .pipeline = 2}})
    run_ranks(shape.size(), [&](Comm<Cpu> world) {
      Cpu dev({.threads = 1});
      Mesh<Cpu> mesh(std::move(world), shape);
      ModelBuilder<Cpu> build(mesh);
      const auto list = describe(build);
      // Both stages hold all parameters, and the first stage owns them, like tied weights.
      for (const auto& parameter : list) parameter->owned = mesh.pipeline_index() == 0;
      ParameterStore<Cpu> store(dev, list, {});
      for (std::int64_t at = 0; at < list[0]->value.count(); ++at)
        list[0]->value.data<float>()[at] = static_cast<float>(2 * list[0]->spec.part.first + at);
      fill(dev, store.gradients(list[1]->range), 0.5);
      Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), 3);
      const auto squares = norms.weight_squares(dev, store, {});
      // 0 + 1 + 4 + ... + 81, and 4 times 9.
      CHECK(widened(squares) == std::vector<double>{285, 36, 0});
      CHECK(widened(norms.gradient_squares(dev, store)) == std::vector<double>{0, 1, 0});
    });
}
