// Evaluation on the Cpu.
#include <tests/parallel/evaluation.hpp>

using namespace tests;

namespace {

const EvaluationCases<Cpu> cases({}, {});

}  // namespace

TEST_CASE("evaluation gives the same terms in every layout") {
  std::vector<Layout> layouts;
  for (const int data : {1, 2, 3})
    for (const int pipeline : {1, 2})
      for (const int tensor : {1, 2})
        layouts.push_back({{.data = data, .tensor = tensor, .pipeline = pipeline}});
  cases.same_terms(layouts);
}

TEST_CASE("evaluation runs the chunks of an interleaved schedule in order") {
  std::vector<Layout> layouts;
  for (const int pipeline : {1, 2, 4})
    layouts.push_back({{.pipeline = pipeline}, ScheduleKind::interleaved, 3});
  cases.same_terms(layouts);
}

TEST_CASE("evaluation drops nothing and leaves no trace") { cases.drops_nothing(); }

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
  cases.nothing({Layout{}, Layout{{.data = 2, .pipeline = 2}}});
}
