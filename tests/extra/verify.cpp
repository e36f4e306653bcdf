// Verified steps find wrong numbers of a rank before the update, and name the rank, in every layout.
#include <dhp/cpu.hpp>
#include <dhp/extra/verify.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/regression.hpp>

namespace {

/// Flips one bit of a gradient on the first tensor rank of a replica, in this many passes from step 2 on.
struct Fault {
  int replica = -1;
  int times = 1;
};

/// The identity layer, except for the fault.
class Faulty : public ElementwiseLayer<Cpu> {
 public:
  explicit Faulty(int times) : left_(times) {}
  Tensor<Cpu> forward(Cpu&, Tensor<Cpu> x, Tape<Cpu>&) { return x; }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>& tape) {
    if (tape.context().step < 2 || left_ == 0) return dy;
    --left_;
    auto dx = clone(dev, dy.view());
    reinterpret_cast<std::uint64_t*>(dx.mut().bytes())[1] ^= std::uint64_t{1} << 50;
    return dx;
  }

 private:
  int left_;
};

struct Case {
  MeshShape mesh{};
  ZeroStage stage = ZeroStage::none;
  std::int64_t micro_batches = 4;
  int every = 2;  ///< 0: no verified steps
  Fault fault{};
  int flips_weight = -1;  ///< rank that flips a weight
  std::variant<Bucketed, Plain> reducer = Bucketed{.bytes = 64};
};

MicroBatch<Cpu> micro_batch(Cpu& dev, std::int64_t index) {
  const auto use = static_cast<std::uint32_t>(index);
  return regression_batch(index, random_tensor<double>(dev, {3, 4}, use),
                          random_tensor<double>(dev, {3, 4}, 100 + use));
}

std::vector<double> train(const Case& of) {
  std::vector<double> losses;
  std::mutex mutex;
  on_ranks_of<Cpu>(of.mesh.size(), [&](Cpu& dev, Comm<Cpu> world) {
    const int rank = world.rank();
    const bool is_faulty =
        rank % of.mesh.tensor == 0 && rank / of.mesh.tensor % of.mesh.data == of.fault.replica;
    const TrainingOptionsOf<std::variant<Bucketed, Plain>, OptimizerChoice> options{
        .layout = of.mesh,
        .store = {.compute = DType::f64,
                  .deterministic = true,
                  .seed = 5,
                  .sharding = {of.stage, 64}},
        .reducer = of.reducer,
        .optimizer = SgdOptions{.momentum = 0.9},
        .trainer = {.learning_rate = {.peak = 0.05}}};
    const auto network = [&](ModelBuilder<Cpu>& build) {
      split_first_and_second(build);
      Model<Cpu> model;
      model.add("first", Linear<Cpu>(build, "first", {.in = 4, .out = 8}));
      model.add("faulty", Faulty(is_faulty ? of.fault.times : 0));
      model.add("second", Linear<Cpu>(build, "second", {.in = 8, .out = 4}));
      model.loss = MeanSquaredError<Cpu>();
      return model;
    };
    std::vector<MicroBatch<Cpu>> all;
    for (std::int64_t at = 0; at < of.micro_batches; ++at) all.push_back(micro_batch(dev, at));
    TrainingRun<Cpu> run(dev, std::move(world), options, network, all.front());
    auto& data = run.mesh().data();
    if (of.every > 0)
      verify_every(run, of.every, [&](int ahead) {
        return assigned<Cpu>(all, (data.rank() + ahead) % data.size(), data.size());
      });
    std::vector<double> mine;
    for (int step = 0; step < 4; ++step) {
      if (step == 1 && rank == of.flips_weight) {
        if (auto* replicas = run.replicas()) replicas->synchronize(dev);
        run.store().parameters().front()->value.data<double>()[1] *= 2;
      }
      mine.push_back(run.step(all).loss);
    }
    const std::lock_guard lock(mutex);
    losses = mine;
  });
  return losses;
}

std::string failure(const Case& of) {
  return message_of([&] { train(of); });
}

const Case cases[] = {{},
                      {.mesh = {.data = 3}, .micro_batches = 5},
                      {.mesh = {.data = 3}, .reducer = Plain{}},
                      {.mesh = {.data = 2, .tensor = 2}},
                      {.mesh = {.data = 3, .pipeline = 2}},
                      {.mesh = {.data = 3}, .stage = ZeroStage::optimizer},
                      {.mesh = {.data = 3}, .stage = ZeroStage::gradients},
                      {.mesh = {.data = 2, .tensor = 2}, .stage = ZeroStage::weights}};

using detail::verification::outvoted;

}  // namespace

TEST_CASE("verified steps: the outvoted replicas and the rank at fault are found") {
  using At = std::vector<std::size_t>;
  CHECK(outvoted({4, 4, 4}) == At{});
  CHECK(outvoted({4, 5, 4}) == At{1});
  CHECK_FALSE(outvoted({4, 5}).has_value());
  CHECK_FALSE(outvoted({4, 5, 6}).has_value());

  using detail::verification::Signatures;
  // Layout 3x1x1: correct passes give the fingerprints 10, 11 and 12 for shares 0, 1 and 2, and 7 for sums.
  const auto expected = [](int replica, int passes) {
    Signatures result{.weights = 3};
    for (int pass = 0; pass < passes; ++pass)
      result.passes.push_back({10 + (replica + pass) % 3, 7});
    return result;
  };
  const MeshShape three{.data = 3};
  std::vector<Signatures> all{expected(0, 2), expected(1, 2), expected(2, 2)};
  CHECK(detail::verification::compare(three, all).agrees);
  all[1].passes[0].given = 99;  // two passes cannot tell which is wrong
  CHECK_FALSE(detail::verification::compare(three, all).agrees);
  CHECK(detail::verification::compare(three, all).wrong.empty());
  all = {expected(0, 3), expected(1, 3), expected(2, 3)};
  all[1].passes[0].given = 99;
  all[0].passes[0].sums = all[1].passes[0].sums = all[2].passes[0].sums = 8;  // follows from it
  CHECK(detail::verification::compare(three, all).what == "gradients");
  CHECK(detail::verification::compare(three, all).wrong == std::vector{1});
  all = {expected(0, 3), expected(1, 3), expected(2, 3)};
  all[2].passes[1].sums = 8;
  CHECK(detail::verification::compare(three, all).what == "sums of gradients");
  CHECK(detail::verification::compare(three, all).wrong == std::vector{2});
  all[0].passes[1].sums = 8;  // with several replicas the wrong rank is unknown
  CHECK(detail::verification::compare(three, all).wrong.empty());
  all = {expected(0, 2), expected(1, 2), expected(2, 2)};
  all[2].weights = 4;
  CHECK(detail::verification::compare(three, all).what == "weights");
  CHECK(detail::verification::compare(three, all).wrong == std::vector{2});
}

TEST_CASE("verified steps: verification changes no bit of the run") {
  for (auto of : cases) {
    CAPTURE(to_text(of.mesh));
    CAPTURE(static_cast<int>(of.stage));
    const auto verified = train(of);
    of.every = 0;
    CHECK(verified == train(of));
  }
}

TEST_CASE("verified steps: a single flipped bit is found before the update, with its replica") {
  for (auto of : cases)
    for (const int replica : {0, of.mesh.data - 1}) {
      of.fault.replica = replica;
      CAPTURE(to_text(of.mesh));
      CAPTURE(static_cast<int>(of.stage));
      const auto message = failure(of);
      CAPTURE(message);
      const auto at = message.find("step 2: rank ");
      REQUIRE(at != message.npos);
      const int named = message[at + 13] - '0';
      CHECK(named / of.mesh.tensor % of.mesh.data == replica);
      CHECK(has(message, "has other gradients"));
    }
}

TEST_CASE("verified steps: of three replicas a permanently wrong rank is named, of two not") {
  Case of{.mesh = {.data = 3}, .fault = {.replica = 1, .times = 1000}};
  CHECK(has(failure(of), "step 2: rank 1 has other gradients"));
  of.mesh.data = 2;
  CHECK(has(failure(of), "replicas have different gradients, and it can't be told"));
}

TEST_CASE("verified steps: of three replicas the one with other weights is named, of two not") {
  Case of{.mesh = {.data = 3}, .flips_weight = 2};
  CHECK(has(failure(of), "step 2: rank 2 has other weights"));
  of.mesh.data = 2;
  of.flips_weight = 1;
  CHECK(has(failure(of), "replicas have different weights, and it can't be told"));
}

TEST_CASE("verified steps: exact sums are required") {
  Cpu dev;
  Mesh<Cpu> mesh(Comm<Cpu>{}, {});
  ParameterStore<Cpu> store(dev, {}, {});
  CHECK(has(message_of([&] { detail::StepVerifier<Cpu>(dev, mesh, store, nullptr, 1, {}); }),
            "exact sums"));
}
