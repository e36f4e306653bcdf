// The choice of library algorithms, over fakes of CUDA, cuBLASLt and NCCL: the fastest on the GPU, found once for
// similar sizes, and the same on all ranks that must have equal bits.
#include <tests/cuda/fake_cublas.hpp>
#include <tests/cuda/fake_cudnn.hpp>
#include <tests/cuda/fake_ranks.hpp>
// The fakes come first, because the headers below call them.
#include <dhp/cuda/cublas_plan.hpp>
#include <dhp/cuda/plan_cache.hpp>
#include <dhp/train/trainer.hpp>
#include <tests/support/folder.hpp>

namespace {

CudaOptions small(int gpu = 0, bool deterministic = false) {
  return {.device = gpu,
          .pinned_bytes = 1 << 12,
          .workspace_bytes = 256,
          .deterministic = deterministic};
}

// Returns the numbers of rows from 1 to 1000, each once, in a shuffled order.
std::vector<std::int64_t> all_rows() {
  std::vector<std::int64_t> result;
  for (std::int64_t at = 1; at < 1009; ++at)
    if (const auto rows = at * 619 % 1009; rows <= 1000) result.push_back(rows);
  return result;
}

// The products of a linear layer: x [rows, in], w [out, in], dy [rows, out].
enum class Pass { y, dx, dw };
constexpr std::int64_t in = 6, out = 9;

// Products of whole numbers, which are exact.
class Products {
 public:
  explicit Products(Cuda& dev) : dev_(dev) {
    for (std::size_t at = 0; at < numbers_.size(); ++at)
      numbers_[at] = static_cast<float>(at * at % 7 + 1);
    a_ = Tensor<Cuda>::from_host(dev, {room}, numbers_);
    b_ = a_.view().slice(1, room);
    c_ = Tensor<Cuda>(dev, DType::f32, {room});
  }

  // Returns whether cuBLASLt computed the product.
  bool run(Pass pass, std::int64_t rows) {
    return dev_.cached<dhp::detail::cuda::CublasPlans>().run(dev_, call(pass, rows));
  }
  bool can(Pass pass, std::int64_t rows) {
    return dev_.cached<dhp::detail::cuda::CublasPlans>().can(dev_, call(pass, rows));
  }
  // Returns the algorithm that ran, or -1. Also checks the last elements of the result, and those after it.
  int algorithm_of(Pass pass, std::int64_t rows) {
    dev_.fill_zero(c_.mut().bytes(), c_.mut().size_bytes());
    if (!run(pass, rows)) return -1;
    const auto e = extents(pass, rows);
    std::array<float, 2> got{};
    dev_.copy_to_host(reinterpret_cast<std::byte*>(got.data()),
                      c_.view().slice(e.m * e.n - 1, e.m * e.n + 1).bytes(), sizeof got);
    float expected = 0;
    for (std::int64_t k = 0; k < e.k; ++k)
      expected += number(e.transpose_a ? k * e.m + e.m - 1 : (e.m - 1) * e.k + k) *
                  number(1 + (e.transpose_b ? (e.n - 1) * e.k + k : k * e.n + e.n - 1));
    CHECK(got[0] == expected);
    CHECK(got[1] == 0);
    return fake::ran[static_cast<std::size_t>(dev_.number())].back();
  }

 private:
  static constexpr std::int64_t room = 1100 * out;
  struct Extents {
    bool transpose_a, transpose_b;
    std::int64_t m, n, k;
  };
  static Extents extents(Pass pass, std::int64_t rows) {
    if (pass == Pass::y) return {false, true, rows, out, in};
    if (pass == Pass::dx) return {false, false, rows, in, out};
    return {true, false, out, in, rows};
  }
  [[nodiscard]] float number(std::int64_t at) const {
    return numbers_[static_cast<std::size_t>(at)];
  }
  dhp::detail::cuda::CublasCall call(Pass pass, std::int64_t rows) {
    const auto e = extents(pass, rows);
    return {.product = dhp::detail::cuda::column_major(e.transpose_a, e.transpose_b, e.m, e.n, e.k),
            .left = b_.bytes(),
            .right = a_.view().bytes(),
            .c = c_.mut().bytes()};
  }
  Cuda& dev_;
  std::vector<float> numbers_ = std::vector<float>(static_cast<std::size_t>(room));
  Tensor<Cuda> a_, c_;
  ConstView<Cuda> b_;
};

// Sets the abilities of the fake cuBLASLt until its own destruction.
struct Abilities {
  explicit Abilities(fake::Can can, fake::Can seems_to = {}) {
    fake::can = std::move(can);
    fake::seems_to = std::move(seems_to);
  }
  Abilities(const Abilities&) = delete;
  Abilities& operator=(const Abilities&) = delete;
  ~Abilities() { fake::can = fake::seems_to = {}; }
};
// Number of starts in one timing: each algorithm starts six times.
constexpr std::size_t starts_of_a_timing = 6 * fake::algorithms;
std::size_t starts() { return fake::ran[0].size(); }

// A minimal model for making a trainer.
struct NoModel {
  Tensor<Cuda> forward_backward(Cuda&, const Step<Cuda>&) { return {}; }
  Tensor<Cuda> evaluate(Cuda&, const Step<Cuda>&) { return {}; }
  void replay(Cuda&, const Step<Cuda>&) {}
  [[nodiscard]] static std::vector<std::string> term_names() { return {"samples"}; }
  ParameterStore<Cuda>& store() { return none; }
  ParameterStore<Cuda> none{};
};
struct NoOptimizer final : Optimizer<Cuda> {
  void apply(Cuda&, ConstView<Cuda>) override {}
  [[nodiscard]] std::string name() const override { return "test"; }
  std::vector<StateBuffer<Cuda>> state() override { return {}; }
  void values_changed(Cuda&) override {}
};

}  // namespace

TEST_CASE("tuning fake: the fastest algorithm is taken; if deterministic, the library's favorite") {
  fake::fastest = {2, 1, 0, 0};
  for (int gpu = 0; gpu < 2; ++gpu) {
    CAPTURE(gpu);
    Cuda timed(small(gpu));
    CHECK(Products(timed).algorithm_of(Pass::y, 16) == 2 - gpu);
    CHECK(fake::ran[static_cast<std::size_t>(gpu)].size() > 3);
    Cuda same(small(gpu, true));
    CHECK(Products(same).algorithm_of(Pass::y, 16) == 0);
    timed.make_deterministic();
    CHECK(Products(timed).algorithm_of(Pass::y, 16) == 0);  // its earlier choice is dropped
    CHECK(Products(timed).algorithm_of(Pass::y, 32) == 0);
  }
  Cuda recorded(small());
  (void)recorded.record([] {});
  CHECK(has(message_of([&] { recorded.make_deterministic(); }),
            "GPU 0 has recorded a step with timed algorithms"));
}

TEST_CASE("tuning fake: a timing that adds to padded rows has memory for the padding") {
  Cuda dev(small());
  constexpr std::int64_t rows = 4096, columns = 65, stride = 128;
  const auto a = Tensor<Cuda>::zeros(dev, DType::f32, {rows, 2});
  const auto b = Tensor<Cuda>::zeros(dev, DType::f32, {columns, 2});
  auto c = Tensor<Cuda>::zeros(dev, DType::f32, {rows, stride});
  auto product = dhp::detail::cuda::column_major(false, true, rows, columns, 2);
  product.c.stride = stride;
  CHECK(dev.cached<dhp::detail::cuda::CublasPlans>().run(dev, {.product = product,
                                                               .left = b.view().bytes(),
                                                               .right = a.view().bytes(),
                                                               .c = c.mut().bytes(),
                                                               .beta = 1}));
  CHECK(dev.memory().held_bytes() - dev.memory().in_use_bytes() >= c.size_bytes());
}

TEST_CASE("tuning fake: a deterministic device reports only an alignment that every layout has") {
  for (const bool deterministic : {false, true}) {
    Cuda dev(small(0, deterministic));
    CHECK(Products(dev).run(Pass::y, 16));
    CHECK(fake::alignment_told == (deterministic ? 16 : 256));
  }
}

TEST_CASE("tuning fake: ranks of a tensor group take the same algorithms") {
  fake::fastest = {2, 1, 2, 1};
  for (const auto shape :
       {MeshShape{.tensor = 2}, MeshShape{.data = 2}, MeshShape{.tensor = 2, .pipeline = 2}}) {
    CAPTURE(shape.tensor);
    const auto taken = on_gpus(shape.size(), [&](Comm<Cuda>& world, Cuda& dev) {
      const int before = Products(dev).algorithm_of(Pass::y, 16);
      Mesh<Cuda> mesh(world, shape);
      NoModel model;
      NoOptimizer optimizer;
      Trainer trainer(dev, model, mesh, optimizer, Norms<Cuda>(mesh.tensor(), mesh.pipeline(), 0),
                      {});
      return concat(before, " ", Products(dev).algorithm_of(Pass::y, 16), " ",
                    Products(dev).algorithm_of(Pass::y, 32));
    });
    for (std::size_t rank = 0; rank < taken.size(); ++rank) {
      const int own = fake::fastest[rank];
      const int then = shape.tensor > 1 ? 0 : own;
      CHECK(taken[rank] == concat(own, " ", then, " ", then));
    }
  }
}

TEST_CASE("tuning fake: a thousand row counts need few timings, and all are fast") {
  fake::fastest = {2, 1, 2, 1};
  const auto rows = all_rows();
  REQUIRE(std::set<std::int64_t>(rows.begin(), rows.end()).size() == 1000);
  std::set<std::int64_t> classes;
  for (const auto number : rows) classes.insert(dhp::detail::size_class<std::int64_t>(number, 8));
  CHECK(classes.size() == 40);
  Cuda dev(small());
  Products products(dev);
  for (const auto pass : {Pass::y, Pass::dx, Pass::dw}) {
    const auto before = starts();
    const int asked = fake::proposals;
    for (const auto number : rows) CHECK(products.algorithm_of(pass, number) == 2);
    CHECK(starts() - before == 1000 + 40 * starts_of_a_timing);
    CHECK(fake::proposals - asked == 40);
    // Further calls of one size make no request to the library and do not wait.
    const int checked = fake::checks;
    CHECK(products.run(pass, rows.back()));
    CHECK(products.run(pass, rows.back()));
    CHECK(fake::checks == checked);
    CHECK(starts() - before == 1002 + 40 * starts_of_a_timing);
  }
  CHECK(dev.cached<dhp::detail::cuda::CublasPlans>().uses().size() == 3 * 40);
  CHECK(dev.cached<dhp::detail::cuda::CublasPlans>().uses(true).empty());
}

TEST_CASE("tuning fake: if the class's algorithm cannot do a size, the library's favorite does") {
  fake::fastest = {2, 1, 2, 1};
  const auto fourths = [](int algorithm, const fake::ProductSize& size) {
    const auto rows = size.columns == out ? size.depth : size.columns;
    return algorithm == 0 ? rows != 11 : algorithm == 1 || rows % 4 == 0;
  };
  const auto all = [](int, const fake::ProductSize&) { return true; };
  // The library refuses before the run, or only when it runs.
  for (const bool knows : {true, false}) {
    CAPTURE(knows);
    const Abilities abilities(fourths, knows ? fake::Can() : fake::Can(all));
    Cuda dev(small());
    Products products(dev);
    for (const auto pass : {Pass::y, Pass::dx, Pass::dw}) {
      CHECK(products.algorithm_of(pass, 12) == 2);
      const auto before = starts();
      CHECK(products.algorithm_of(pass, 13) == 0);
      CHECK(products.algorithm_of(pass, 16) == 2);
      CHECK(products.algorithm_of(pass, 11) == 1);
      CHECK(products.algorithm_of(pass, 12) == 2);
      CHECK(starts() - before == (knows ? 4 : 7));
    }
  }
}

TEST_CASE("tuning fake: a size without an algorithm is refused, sizes near it are not") {
  fake::fastest = {2, 1, 2, 1};
  const Abilities abilities(
      [](int, const fake::ProductSize& size) { return size.columns % 2 == 1; });
  Cuda dev(small());
  Products products(dev);
  auto& plans = dev.cached<dhp::detail::cuda::CublasPlans>();
  CHECK_FALSE(products.can(Pass::y, 10));
  CHECK(products.can(Pass::y, 11));
  CHECK(plans.uses().empty());
  CHECK(products.algorithm_of(Pass::y, 10) == -1);
  CHECK_FALSE(products.can(Pass::y, 10));
  CHECK(products.can(Pass::y, 11));
  CHECK(products.algorithm_of(Pass::y, 11) == 2);  // timed now: the first size could not run
  CHECK(products.algorithm_of(Pass::y, 12) == -1);
  CHECK_FALSE(products.can(Pass::y, 12));
  CHECK(products.algorithm_of(Pass::y, 13) == 2);
  REQUIRE(plans.uses(true).size() == 1);
  CHECK(plans.uses(true).front().problem ==
        "gemm f32 f32 9 <=16 6 TN epilogue 1 f32 at 4 256 256 256 256");
  CHECK(plans.uses(true).front().calls == 2);
}

TEST_CASE("tuning fake: a proposed algorithm that fails to run is replaced, timed or not") {
  fake::fastest = {2, 1, 2, 1};
  const auto all = [](int, const fake::ProductSize&) { return true; };
  for (const bool deterministic : {false, true}) {
    CAPTURE(deterministic);
    Cuda dev(small(0, deterministic));
    Products products(dev);
    auto& plans = dev.cached<dhp::detail::cuda::CublasPlans>();
    {
      const Abilities abilities([](int algorithm, const auto&) { return algorithm == 1; }, all);
      CHECK(products.algorithm_of(Pass::y, 16) == 1);
      CHECK(products.algorithm_of(Pass::y, 16) == 1);
      CHECK(plans.uses(true).empty());
    }
    const Abilities abilities([](int, const auto&) { return false; }, all);
    CHECK(products.can(Pass::dx, 16));
    CHECK_FALSE(products.run(Pass::dx, 16));
    CHECK_FALSE(products.can(Pass::dx, 16));
    const auto before = starts();
    CHECK_FALSE(products.run(Pass::dx, 16));
    CHECK(starts() == before);
    REQUIRE(plans.uses(true).size() == 1);
    CHECK(plans.uses(true).front().refusal == "none of its algorithms runs");
  }
}

TEST_CASE("tuning fake: a cuDNN plan that fails to run is replaced by the next, or none") {
  const auto run = [](Cuda& dev, const char* problem) {
    fake::engines_asked.clear();
    return dev.cached<dhp::detail::cuda::CudnnPlans>().run(
        dev, problem, {}, {}, [] { return dhp::detail::cuda::CudnnGraph(); });
  };
  const auto refuse_below = [](int first) {
    fake::plan_runs = [first](const auto& plan) {
      return plan.engine < first ? CUDNN_STATUS_NOT_SUPPORTED_SHAPE : CUDNN_STATUS_SUCCESS;
    };
  };
  for (const bool deterministic : {false, true}) {
    CAPTURE(deterministic);
    Cuda dev(small(0, deterministic));
    auto& plans = dev.cached<dhp::detail::cuda::CudnnPlans>();
    refuse_below(1);
    CHECK(run(dev, "a"));
    if (deterministic) CHECK(fake::engines_asked == std::vector<int>{0, 1});
    CHECK(fake::engines_asked.back() == 1);
    CHECK(run(dev, "a"));
    CHECK(fake::engines_asked == std::vector<int>{1});
    // A plan that has run may refuse other arguments.
    refuse_below(2);
    CHECK(run(dev, "a"));
    CHECK(fake::engines_asked.back() == 2);
    CHECK(plans.uses(true).empty());
    CHECK(plans.uses().front().calls == 3);
    refuse_below(3);
    for (const auto* const problem : {"a", "b"}) {
      CHECK_FALSE(run(dev, problem));
      CHECK(plans.refused(problem));
      CHECK_FALSE(run(dev, problem));
      CHECK(fake::engines_asked.empty());
    }
    REQUIRE(plans.uses(true).size() == 2);
    CHECK(has(plans.uses(true).front().refusal, "cudnnBackendExecute"));
  }
  // Any other status is an error.
  Cuda dev(small(0, true));
  fake::plan_runs = [](const auto&) { return CUDNN_STATUS_EXECUTION_FAILED; };
  CHECK(has(message_of([&] { (void)run(dev, "c"); }), "cudnnBackendExecute failed"));
  fake::plan_runs = {};
}

TEST_CASE("tuning fake: a file's choice applies to all sizes of its class without timing") {
  const Folder folder;
  auto options = small();
  options.plan_cache = folder / "choices";
  fake::fastest = {2, 1, 2, 1};
  {
    Cuda dev(options);
    Products products(dev);
    for (const auto pass : {Pass::y, Pass::dx, Pass::dw})
      CHECK(products.algorithm_of(pass, 100) == 2);
  }
  fake::fastest = {1, 2, 1, 2};
  const Abilities abilities([](int algorithm, const fake::ProductSize& size) {
    return algorithm != 2 || (size.columns == in ? size.depth : size.columns) != 97;
  });
  for (const bool deterministic : {false, true}) {
    CAPTURE(deterministic);
    options.deterministic = deterministic;
    Cuda dev(options);
    Products products(dev);
    const auto before = starts();
    // In whatever order sizes come, none is timed, not even one that the algorithm of its class cannot run.
    for (const auto pass : {Pass::y, Pass::dx, Pass::dw}) {
      CHECK(products.algorithm_of(pass, 101) == 2);
      CHECK(products.algorithm_of(pass, 104) == 2);
      CHECK(products.algorithm_of(pass, 100) == 2);
    }
    CHECK(products.algorithm_of(Pass::y, 97) == 0);
    CHECK(starts() - before == 10);
    // This size's class is not in the file.
    CHECK(products.algorithm_of(Pass::dx, deterministic ? 400 : 200) == (deterministic ? 0 : 1));
  }
}

TEST_CASE("tuning fake: a recorded step uses earlier choices and times nothing") {
  fake::fastest = {2, 1, 2, 1};
  Cuda dev(small());
  Products products(dev);
  CHECK(products.algorithm_of(Pass::y, 500) == 2);
  const auto before = starts();
  const auto graph = dev.record([&] {
    CHECK(products.run(Pass::y, 510));
    CHECK(fake::ran[0].back() == 2);
    CHECK(products.run(Pass::dx, 510));
    CHECK(fake::ran[0].back() == 0);
  });
  CHECK(starts() - before == 2);
  CHECK(products.algorithm_of(Pass::dx, 509) == 2);
}
