// Evaluation on the Cpu.
#include <tests/parallel/evaluation.hpp>

namespace {

const EvaluationCases<Cpu> cases({}, {});

}  // namespace

TEST_CASE("evaluation gives the same terms in every layout") {
  cases.same_terms({{{.data = 2}},
                    {{.data = 3, .pipeline = 2}},
                    {{.tensor = 2}},
                    {{.data = 2, .tensor = 2, .pipeline = 2}}});
}

TEST_CASE("evaluation runs the chunks of a stage in order") {
  std::vector<Layout> layouts;
  for (const int pipeline : {1, 2, 4})
    for (const auto& kind : {AnySchedule(Interleaved{}), AnySchedule(ZeroBubbleV{})})
      layouts.push_back(with_chunks({.pipeline = pipeline}, kind, 3));
  cases.same_terms(layouts);
}

TEST_CASE("evaluation drops nothing and changes nothing") { cases.drops_nothing(); }

TEST_CASE("evaluation: masked rows that fill up a batch do not count") {
  cases.filled_up({Layout{}, Layout{{.data = 2, .tensor = 2}}});
}

TEST_CASE("evaluation of no batches gives nothing") {
  cases.nothing({Layout{}, Layout{{.data = 2, .pipeline = 2}}});
}
