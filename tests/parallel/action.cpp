// The stages of the model's parts, and the messages of actions.
#include <dhp/parallel/action.hpp>
#include <tests/support/tensors.hpp>

using Kind = Action::Kind;

TEST_CASE("action: an action determines its messages") {
  const dhp::detail::Wiring wiring{.stages = 3, .chunks = 2};  // parts 0..5; stage 2 holds 2 and 5
  const Action forward{Kind::forward, 0, 7};
  CHECK(wiring.source(0, forward) == -1);
  CHECK(wiring.target(0, forward) == 1);
  CHECK(wiring.target(2, forward) == 3);
  CHECK(wiring.stage_of(3) == 0);
  CHECK(wiring.target(2, {Kind::forward, 1, 7}) == -1);
  for (const auto kind : {Kind::backward, Kind::backward_input}) {
    CHECK(wiring.source(2, {kind, 1, 7}) == -1);
    CHECK(wiring.target(2, {kind, 1, 7}) == 4);
    CHECK(wiring.source(2, {kind, 0, 7}) == 3);
    CHECK(wiring.target(0, {kind, 0, 7}) == -1);
  }
  CHECK(wiring.source(1, {Kind::backward_weight, 0, 7}) == -1);
  CHECK(wiring.target(1, {Kind::backward_weight, 0, 7}) == -1);
}

TEST_CASE("action: in a V the second chunks are in the opposite order") {
  const dhp::detail::Wiring v{.stages = 3, .chunks = 2, .v_shaped = true};
  for (int part = 0; part < 6; ++part) {
    CHECK(v.stage_of(part) == (part < 3 ? part : 5 - part));
    CHECK(v.part(v.stage_of(part), v.chunk_of(part)) == part);
  }
  CHECK(v.target(2, {Kind::forward, 0, 7}) == 3);  // part 3 is on stage 2, too
  CHECK(v.target(0, {Kind::forward, 1, 7}) == -1);
  CHECK(v.source(1, {Kind::backward, 1, 7}) == 5);
}
