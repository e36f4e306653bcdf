// Tied weights on the Cpu.
#include <dhp/cpu.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <tests/parallel/tied.hpp>
#include <tests/support/gradients.hpp>

namespace {

/// Gathers rows of which each tensor rank has a share.
struct GatherRows {
  RowShares<Cpu> shares;
  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    return shares.gather(dev, std::move(x), tape);
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>&) {
    return shares.take(dev, std::move(dy));
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Cpu>& batch) const {
    return in.with(0, shares.all(batch, in[0]));
  }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
  void parameters(ParameterList<Cpu>&) const {}
};

/// The gradient of the weight of one norm that two layers use; they are on two stages if there are two.
std::vector<double> gradient_of_shared_norm(const MeshShape& shape) {
  std::vector<double> gradient;
  on_ranks_of<Cpu>(shape.tensor * shape.pipeline, [&](Cpu& dev, Comm<Cpu> world) {
    Mesh<Cpu> mesh(std::move(world), shape);
    const ParameterStoreOptions options{.compute = DType::f64};
    ModelBuilder<Cpu> build(mesh, options);
    build.place({{"*.a.*", Placement::columns},
                 {"*.b.weight", Placement::rows},
                 {"table.weight", Placement::words},
                 {"norm.*", Placement::shares},
                 {"*", Placement::replicated}},
                4);
    Model<Cpu> model;
    model.add("table", Embedding<Cpu>(build, "table", {16, 8, "ids", 1.0}));
    const LayerNorm<Cpu> norm(build, "norm", 8, 1e-5);
    for (const std::string name : {"1", "2"}) {
      model.add("norm" + name, norm);
      model.add("ff" + name,
                FeedForward<Cpu>(build, name + ".a", name + ".b", {8, 16, normal(0.5)}));
    }
    model.add("gather", GatherRows{build.whole_rows()});
    model.loss = MeanSquaredError<Cpu>();
    MicroBatch<Cpu> batch;
    batch.samples = 1;
    batch.side.emplace_back("ids", tensor_of<std::int32_t>(dev, {1, 5, 3, 2, 7, 9}));
    batch.side.emplace_back("row_numbers", tensor_of<std::int64_t>(dev, {0, 1, 2, 3, 4, 5}));
    batch.side.emplace_back("targets", random_tensor<double>(dev, {6, 8}, 1));
    batch.counts.emplace_back("elements", 48);
    PipelineParallel<Cpu> stage(dev, std::move(model), mesh, {.costs = {1, 1, 1, 1, 1, 1}}, batch,
                                options);
    stage.store().begin_gradients(dev);
    (void)stage.forward_backward(dev, {.batches = std::span(&batch, 1), .micro_batches = 1});
    for (const auto& parameter : stage.store().parameters())
      if (parameter->spec.name == "norm.weight" && mesh.world().rank() == 0)
        gradient = widened(dev, parameter->gradient);
  });
  return gradient;
}

}  // namespace

TEST_CASE("tied weights: gradients are summed over the stages that use them, each ready once") {
  TiedCases<Cpu>::sums();
}
TEST_CASE("tied weights: the first stage owns them, all start equal, and norms count them once") {
  TiedCases<Cpu>::owners();
}
TEST_CASE("tied weights: one that tensor ranks share rows of is summed over them, too") {
  const auto serial = gradient_of_shared_norm({});
  CHECK(serial.size() == 8);
  for (const MeshShape& shape :
       {MeshShape{.pipeline = 2}, MeshShape{.tensor = 2}, MeshShape{.tensor = 2, .pipeline = 2}}) {
    CAPTURE(shape.pipeline);
    const auto found = gradient_of_shared_norm(shape);
    REQUIRE(found.size() == 8);
    for (std::size_t at = 0; at < 8; ++at) CHECK(found[at] == Approx(serial[at]).epsilon(1e-12));
  }
}
