// Predictions on the Cpu.
#include <tests/train/predictions.hpp>

namespace {

std::vector<Layout> layouts() {
  return {Layout{},
          Layout{{.data = 2}},
          Layout{{.tensor = 2}},
          Layout{{.pipeline = 3}},
          Layout{{.data = 2, .pipeline = 2}},
          Layout{{.data = 2, .tensor = 2, .pipeline = 2}},
          Layout{{.data = 2, .pipeline = 2, .context = 3}},  // 3 ranks share 3 or 2 micro-batches
          Layout{{.data = 7}},                               // two replicas have no micro-batch
          Layout{{.pipeline = 2}, Interleaved{}, 3},
          Layout{{.pipeline = 2}, ZeroBubbleV{}, 2}};  // the first stage has the scores
}

}  // namespace

TEST_CASE("predictions: every layout gives the same scores, in micro-batch order") {
  PredictionCases<Cpu>::same_scores(layouts());
}

TEST_CASE("predictions: replicas that shard weights give the same scores") {
  PredictionCases<Cpu>::same_scores({Layout{{.data = 2}}, Layout{{.data = 3, .pipeline = 2}}},
                                    {.sharding = {.stage = ZeroStage::weights}});
}

TEST_CASE("predictions: every layout gives the mean of a sample's tokens") {
  PredictionCases<Cpu>::sample_means(layouts());
}

TEST_CASE("predictions: no micro-batches give no predictions") {
  on_each_rank<Cpu>(
      Layout{{.data = 2}}, {}, [](ModelBuilder<Cpu>& build) { return everything(build); },
      [](Cpu& dev) { return everything_batch(dev, 0, 0); },
      [](Cpu&, Mesh<Cpu>&, auto&, auto& trainer) { CHECK(trainer.predict({}).empty()); });
}

TEST_CASE("predictions: duplicate indices and a loss without predict() are refused") {
  on_each_rank<Cpu>(
      Layout{}, {}, [](ModelBuilder<Cpu>& build) { return everything(build); },
      [](Cpu& dev) { return everything_batch(dev, 0, 0); },
      [](Cpu& dev, Mesh<Cpu>&, auto&, auto& trainer) {
        StepBatches<Cpu> twice;
        twice.micro_batches = 2;
        for (int k = 0; k < 2; ++k) twice.batches.push_back(everything_batch(dev, 0, 0));
        CHECK_THROWS_WITH_AS(trainer.predict(twice), Contains("by no replica, or by two"), Error);
      });
  struct Silent {
    [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
    void forward(Cpu&, Tensor<Cpu>, Tape<Cpu>&, View<Cpu>) {}
    Tensor<Cpu> backward(Cpu&, ConstView<Cpu>, Tape<Cpu>&) { return {}; }
    [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
    void parameters(ParameterList<Cpu>&) const {}
  };
  Cpu dev;
  AnyLoss<Cpu> loss(Silent{});
  MicroBatch<Cpu> batch;
  Tape<Cpu> tape({}, &batch);
  CHECK_THROWS_WITH_AS(loss.predict(dev, {}, tape), Contains("has no predictions"), Error);
}

TEST_CASE("normalize_rows: rows get length 1, and zero rows stay zero") {
  HostArray rows({3, 2}, std::vector<float>{3, 4, 0, 0, 0, -2});
  normalize_rows(rows);
  const auto values = rows.values<float>();
  const std::vector<float> found(values.begin(), values.end());
  CHECK(found == std::vector<float>{0.6F, 0.8F, 0, 0, 0, -1});
}
