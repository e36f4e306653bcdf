// Evaluation gives the same terms in every layout, also with unequal numbers of micro-batches. On any device.
#pragma once

#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

namespace tests {

template <class Dev>
class EvaluationCases {
 public:
  EvaluationCases(const EverythingOptions& model, const RunSettings& settings)
      : model_(model), settings_(settings) {}

  void same_terms(const std::vector<Layout>& layouts) const {
    const auto serial = evaluated({});
    CHECK(serial.before.micro_batches == held_out);
    CHECK(serial.before.terms.at(1).count == 9);  // samples: four full micro-batches and one of 1
    CHECK(serial.before.terms.at(0).correct_in_five > 0);
    CHECK(serial.after.terms.at(0).sum != serial.before.terms.at(0).sum);
    for (const auto& layout : layouts) {
      CAPTURE(to_text(layout));
      const auto found = evaluated(layout);
      check_same_terms(serial.before, found.before);
      check_same_terms(serial.after, found.after);
    }
  }

  void drops_nothing() const {
    // The untrained model has the same loss with and without dropout, and in both of two evaluations.
    const auto twice = [&](double dropout) {
      std::vector<double> sums;
      auto model = model_;
      model.dropout = dropout;
      on_each_rank<Dev>(
          Layout{}, RunSettings{},
          [&](ModelBuilder<Dev>& build) { return everything(build, model); },
          [](Dev& dev) { return everything_batch(dev, 0, 0); },
          [&](Dev& dev, Mesh<Dev>& mesh, auto& pipeline, auto& trainer) {
            const auto batches =
                assigned(mesh, 3, [&](std::int64_t k) { return everything_batch(dev, 1, k); });
            for (int round = 0; round < 2; ++round)
              sums.push_back(trainer.evaluate(batches).terms.at(0).sum);
            for (const auto& parameter : pipeline.store().parameters())
              for (const double gradient : widened(dev, parameter->gradient))
                if (gradient != 0) FAIL("a gradient of ", parameter->spec.name);
          });
      return sums;
    };
    const auto plain = twice(0);
    const auto dropping = twice(0.5);
    CHECK(plain.at(0) == plain.at(1));
    CHECK(dropping == plain);
  }

  void filled_up(const std::vector<Layout>& layouts) const {
    for (const auto& layout : layouts)
      on_each_rank<Dev>(
          layout, {}, [&](ModelBuilder<Dev>& build) { return everything(build, model_); },
          [](Dev& dev) { return everything_batch(dev, 0, 0); },
          [](Dev& dev, Mesh<Dev>& mesh, auto&, auto& trainer) {
            const auto evaluate = [&](bool fixed) {
              return trainer.evaluate(assigned(mesh, held_out, [&](std::int64_t k) {
                return everything_batch(dev, 77, k, 64, everything_samples, fixed);
              }));
            };
            check_same_terms(evaluate(false), evaluate(true));
          });
  }

  void nothing(const std::vector<Layout>& layouts) const {
    for (const auto& layout : layouts)
      on_each_rank<Dev>(
          layout, {}, [&](ModelBuilder<Dev>& build) { return everything(build, model_); },
          [](Dev& dev) { return everything_batch(dev, 0, 0); },
          [](Dev&, Mesh<Dev>&, auto&, auto& trainer) {
            const auto found = trainer.evaluate({});
            CHECK(found.micro_batches == 0);
            CHECK(found.value() == 0);
          });
  }

 private:
  static constexpr std::int64_t held_out = 5;  // 3 + 2 over two replicas, 2 + 2 + 1 over three

  struct Evaluated {
    GlobalLoss before;  ///< with the initial weights
    GlobalLoss after;   ///< two steps later, with other running statistics
    std::vector<double> losses;
  };

  [[nodiscard]] Evaluated evaluated(const Layout& layout) const {
    Evaluated result;
    on_each_rank<Dev>(
        layout, settings_, [&](ModelBuilder<Dev>& build) { return everything(build, model_); },
        [](Dev& dev) { return everything_batch(dev, 0, 0); },
        [&](Dev& dev, Mesh<Dev>& mesh, auto&, auto& trainer) {
          const auto test_set = assigned(mesh, held_out, [&](std::int64_t k) {
            // The last micro-batch has one sample.
            return everything_batch(dev, 77, k, 64, k == held_out - 1 ? 1 : everything_samples);
          });
          const auto before = trainer.evaluate(test_set);
          std::vector<double> losses;
          for (int step = 0; step < 2; ++step)
            losses.push_back(
                trainer
                    .step(assigned(mesh, settings_.micro_batches,
                                   [&](std::int64_t k) { return everything_batch(dev, step, k); }))
                    .loss);
          const auto after = trainer.evaluate(test_set);
          if (mesh.world().rank() == mesh.world().size() - 1) result = {before, after, losses};
        });
    return result;
  }

  static void check_same_terms(const GlobalLoss& expected, const GlobalLoss& found) {
    CHECK(found.micro_batches == expected.micro_batches);
    REQUIRE(found.terms.size() == expected.terms.size());
    for (std::size_t term = 0; term < expected.terms.size(); ++term) {
      const auto& one = expected.terms[term];
      const auto& other = found.terms[term];
      CHECK(std::abs(other.sum - one.sum) <= 1e-12 * one.sum);
      CHECK(other.count == one.count);
      CHECK(other.correct == one.correct);
      CHECK(other.correct_in_five == one.correct_in_five);
    }
  }

  EverythingOptions model_;
  RunSettings settings_;
};

}  // namespace tests
