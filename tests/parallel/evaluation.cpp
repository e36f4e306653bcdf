// Evaluation is exact and the same in every layout, also where replicas get unequal numbers of
// micro-batches.
#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

constexpr std::int64_t held_out = 5;  // 3 + 2 over two replicas, 2 + 2 + 1 over three

struct Evaluated {
  GlobalLoss before;  ///< with the initial weights
  GlobalLoss after;   ///< two steps later: running statistics have moved
  std::vector<double> losses;
};

Evaluated evaluated(const Layout& layout, const RunSettings& settings) {
  Evaluated result;
  on_each_rank(
      layout, settings, [](Build<Cpu>& build) { return everything(build); },
      [](Cpu& dev) { return everything_batch(dev, 0, 0); },
      [&](Cpu& dev, Mesh<Cpu>& mesh, auto&, auto& trainer) {
        const auto test_set = dealt(mesh, held_out, [&](std::int64_t k) {
          // The last one is short.
          return everything_batch(dev, 77, k, 64, k == held_out - 1 ? 1 : everything_samples);
        });
        const auto before = trainer.evaluate(test_set);
        std::vector<double> losses;
        for (int step = 0; step < 2; ++step)
          losses.push_back(
              trainer
                  .step(dealt(mesh, settings.micro_batches,
                              [&](std::int64_t k) { return everything_batch(dev, step, k); }))
                  .loss);
        const auto after = trainer.evaluate(test_set);
        if (mesh.world().rank() == mesh.world().size() - 1) result = {before, after, losses};
      });
  return result;
}

void check_same_terms(const GlobalLoss& expected, const GlobalLoss& found) {
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

}  // namespace

TEST_CASE("evaluation gives the same terms in every layout") {
  const auto serial = evaluated({}, {});
  CHECK(serial.before.micro_batches == held_out);
  CHECK(serial.before.terms.at(1).count == 9);  // samples: four full micro-batches and one of 1
  CHECK(serial.before.terms.at(0).correct_in_five > 0);
  CHECK(serial.after.terms.at(0).sum != serial.before.terms.at(0).sum);
  for (const int data : {1, 2, 3})
    for (const int pipeline : {1, 2})
      for (const int tensor : {1, 2}) {
        const Layout layout{{.data = data, .tensor = tensor, .pipeline = pipeline}};
        CAPTURE(to_text(layout));
        const auto found = evaluated(layout, {});
        check_same_terms(serial.before, found.before);
        check_same_terms(serial.after, found.after);
      }
}

TEST_CASE("evaluation runs the chunks of an interleaved schedule in order") {
  const auto serial = evaluated({}, {});
  for (const int pipeline : {1, 2, 4}) {
    const auto found = evaluated({{.pipeline = pipeline}, ScheduleKind::interleaved, 3}, {});
    check_same_terms(serial.after, found.after);
  }
}

TEST_CASE("evaluation drops nothing and leaves no trace") {
  // Without dropout and with it the untrained model evaluates alike, and twice alike.
  const auto twice = [](double dropout) {
    std::vector<double> sums;
    on_each_rank(
        Layout{}, RunSettings{},
        [&](Build<Cpu>& build) { return everything(build, {.dropout = dropout}); },
        [](Cpu& dev) { return everything_batch(dev, 0, 0); },
        [&](Cpu& dev, Mesh<Cpu>& mesh, auto& pipeline, auto& trainer) {
          const auto batches =
              dealt(mesh, 3, [&](std::int64_t k) { return everything_batch(dev, 1, k); });
          for (int round = 0; round < 2; ++round)
            sums.push_back(trainer.evaluate(batches).terms.at(0).sum);
          for (const auto& parameter : pipeline.store().parameters())
            for (const double gradient : host_values(dev, parameter->gradient))
              if (gradient != 0) FAIL("a gradient of ", parameter->spec.name);
        });
    return sums;
  };
  const auto plain = twice(0);
  const auto dropping = twice(0.5);
  CHECK(plain.at(0) == plain.at(1));
  CHECK(dropping == plain);
}

TEST_CASE("evaluation: masked rows that count nothing are in no sum and no count") {
  for (const auto& layout : {Layout{}, Layout{{.data = 2, .tensor = 2}}})
    on_each_rank(
        layout, {}, [](Build<Cpu>& build) { return everything(build); },
        [](Cpu& dev) { return everything_batch(dev, 0, 0); },
        [](Cpu& dev, Mesh<Cpu>& mesh, auto&, auto& trainer) {
          const auto evaluate = [&](bool fixed) {
            return trainer.evaluate(dealt(mesh, held_out, [&](std::int64_t k) {
              return everything_batch(dev, 77, k, 64, everything_samples, fixed);
            }));
          };
          check_same_terms(evaluate(false), evaluate(true));
        });
}

TEST_CASE("evaluation of nothing is nothing") {
  for (const auto& layout : {Layout{}, Layout{{.data = 2, .pipeline = 2}}})
    on_each_rank(
        layout, {}, [](Build<Cpu>& build) { return everything(build); },
        [](Cpu& dev) { return everything_batch(dev, 0, 0); },
        [](Cpu&, Mesh<Cpu>&, auto&, auto& trainer) {
          const auto nothing = trainer.evaluate({});
          CHECK(nothing.micro_batches == 0);
          CHECK(nothing.value() == 0);
        });
}
