// Which algorithms of a library a device takes, over a fake of CUDA, cuBLASLt and NCCL: the fastest on its GPU, but the
// same on all ranks that must get the same bits.
#include <tests/cuda/fake_cublas.hpp>
#include <tests/cuda/fake_ranks.hpp>
// The fakes first: what follows calls them.
#include <dhp/cuda/cublas_plan.hpp>
#include <dhp/train/trainer.hpp>

#include <doctest/doctest.h>

#include <span>

namespace {

using namespace tests;

// The algorithm that runs at the end of two products of a shape.
int algorithm_of(Cuda& dev, std::int64_t rows) {
  auto call =
      cuda::cublas_call(cuda::column_major(false, false, rows, 16, 16), DType::f32, DType::f32);
  const auto memory = dev.allocate(static_cast<std::size_t>(rows) * 16 * sizeof(float));
  call.left = call.right = call.c = memory.get();
  for (int times = 0; times < 2; ++times)
    check(dev.kept<cuda::CublasPlans>().run(dev, call), "the fake of cuBLASLt knows no way");
  return fake::ran[static_cast<std::size_t>(dev.number())].back();
}

// What a trainer needs to be made.
struct NoModel {
  Tensor<Cuda> forward_backward(Cuda&, const Step<Cuda>&, void (&)(Range)) { return {}; }
  Tensor<Cuda> evaluate(Cuda&, const Step<Cuda>&) { return {}; }
  void replay(Cuda&, const Step<Cuda>&) {}
  [[nodiscard]] static std::vector<std::string> term_names() { return {"samples"}; }
  ParameterStore<Cuda>& store() { return none; }
  ParameterStore<Cuda> none{};
};
struct NoOptimizer final : Optimizer<Cuda> {
  void step(Cuda&, ConstView<Cuda>, ConstView<Cuda>) override {}
  std::vector<StateBuffer<Cuda>> state() override { return {}; }
  void values_changed(Cuda&) override {}
};

}  // namespace

TEST_CASE(
    "tuning fake: a device takes what is fastest on its GPU, a deterministic one the library's "
    "favourite") {
  fake::fastest = {2, 1, 0, 0};
  for (int gpu = 0; gpu < 2; ++gpu) {
    CAPTURE(gpu);
    Cuda timed({.device = gpu, .pinned_bytes = 1 << 12, .workspace_bytes = 256});
    CHECK(algorithm_of(timed, 16) == 2 - gpu);
    CHECK(fake::ran[static_cast<std::size_t>(gpu)].size() > 3);
    Cuda same(
        {.device = gpu, .pinned_bytes = 1 << 12, .workspace_bytes = 256, .deterministic = true});
    CHECK(algorithm_of(same, 16) == 0);
    timed.make_deterministic();
    CHECK(algorithm_of(timed, 16) == 0);  // what it chose before counts no more
    CHECK(algorithm_of(timed, 32) == 0);
  }
  Cuda recorded({.device = 0, .pinned_bytes = 1 << 12, .workspace_bytes = 256});
  (void)recorded.record([] {});
  CHECK(contains(message_of([&] { recorded.make_deterministic(); }),
                 "GPU 0 has recorded a step with algorithms that were chosen by time"));
}

TEST_CASE(
    "tuning fake: ranks of a tensor axis take the same algorithms, those of other axes what suits "
    "them") {
  fake::fastest = {2, 1, 2, 1};
  for (const auto shape :
       {MeshShape{.tensor = 2}, MeshShape{.data = 2}, MeshShape{.tensor = 2, .pipeline = 2}}) {
    CAPTURE(shape.tensor);
    const auto taken = on_gpus(shape.size(), [&](NcclComm& world, Cuda& dev) {
      const int before = algorithm_of(dev, 16);
      Mesh<Cuda> mesh(Comm<Cuda>::of(world), shape);
      NoModel model;
      NoOptimizer optimizer;
      Trainer trainer(dev, model, mesh, optimizer, Norms<Cuda>(mesh.tensor(), mesh.pipeline(), 0),
                      {});
      return concat(before, " ", algorithm_of(dev, 16), " ", algorithm_of(dev, 32));
    });
    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
      const int own = fake::fastest[rank];
      const int then = shape.tensor > 1 ? 0 : own;
      CHECK(taken[rank] == concat(own, " ", then, " ", then));
    }
  }
}
