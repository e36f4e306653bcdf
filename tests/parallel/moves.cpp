// The moves of weights and gradients that with_moves inserts into a stage's list. They pass the check, come early
// enough to overlap forward and backward passes, and any changed move is refused.
#include <dhp/parallel/fixed_schedule.hpp>
#include <dhp/parallel/moves.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <tests/support/tensors.hpp>

namespace {

using dhp::detail::MovedUnit;
using dhp::detail::MovePlan;
using dhp::detail::Pass;
using Kind = Action::Kind;
using List = std::vector<Action>;

/// One unit per layer; the first layer's unit is reduced at the end.
MovePlan unit_per_layer(int layers, MovedUnit::Reduced reduced, bool sharded) {
  std::vector<MovedUnit> units;
  for (int layer = 0; layer < layers; ++layer)
    units.push_back({{layer}, layer == 0 ? MovedUnit::Reduced::end : reduced, sharded});
  return MovePlan(layers, std::move(units));
}
/// Small layers share a unit, a large layer has two, and the first and the last layer share one.
MovePlan odd_units(int layers, MovedUnit::Reduced reduced, bool sharded) {
  std::vector<MovedUnit> units{{{0, layers - 1}, MovedUnit::Reduced::end, sharded}};
  for (int layer = 0; layer < layers; ++layer) {
    if (layer % 4 == 1) units.back().chunks.push_back(layer);
    else units.push_back({{layer}, reduced, sharded});
    if (layer % 4 == 2) units.push_back({{layer}, reduced, sharded});
  }
  return MovePlan(layers, std::move(units), 1);
}

using MakePlan = MovePlan(int layers, MovedUnit::Reduced reduced, bool sharded);

struct Case {
  List list;
  MovePlan plan;
  int micro_batches;
  Pass pass;
};
std::string complaint(const List& list, const Case& of) {
  const auto error = tests::message_of(
      [&] { dhp::detail::check_moves(list, of.plan, of.micro_batches, of.pass); });
  return error == "no error" ? "" : error;
}

/// Calls body for the lists of all schedules, with three layers per part, and all plans.
void for_each_case(int stages, const std::vector<int>& counts, FunctionRef<void(const Case&)> body,
                   const std::vector<MakePlan*>& plans = {unit_per_layer, odd_units}) {
  auto schedules = dhp::built_in_schedules();
  schedules.emplace_back(dhp::detail::ForwardOnly{});
  for (const auto& schedule : schedules)
    for (const int m : counts)
      for (int stage = 0; stage < stages; ++stage)
        for (const auto reduced : {MovedUnit::Reduced::last, MovedUnit::Reduced::each})
          for (const auto make : plans) {
            const int chunks = schedule.needed_chunks().value_or(2);
            const int layers = 3 * chunks;
            std::vector<int> first;
            for (int chunk = 0; chunk <= chunks; ++chunk) first.push_back(3 * chunk);
            const auto pass = schedule.name() == dhp::detail::ForwardOnly::name ? Pass::evaluation
                                                                                : Pass::training;
            auto plan = make(layers, reduced, true);
            auto list = dhp::detail::with_moves(
                dhp::detail::by_layers(schedule.actions(stage, stages, m, chunks), first), plan, m,
                pass);
            body({std::move(list), std::move(plan), m, pass});
          }
}

std::string text(const List& list) { return FixedSchedule::to_csv(StageLists{list}); }

TEST_CASE("moves: are inserted for two and three layers with one unit each") {
  const List list{
      {Kind::forward, 0, 0}, {Kind::backward, 0, 0}, {Kind::forward, 0, 1}, {Kind::backward, 0, 1}};
  const auto layers = dhp::detail::by_layers(list, {0, 2});
  CHECK(text(layers) == "0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1\n");
  using Reduced = MovedUnit::Reduced;
  const auto moves = [&](Reduced reduced, bool sharded, Pass pass) {
    const MovePlan plan(2, {{{0}, reduced, sharded}, {{1}, reduced, sharded}});
    return text(dhp::detail::with_moves(layers, plan, 2, pass));
  };
  CHECK(moves(Reduced::last, false, Pass::training) ==
        "0F0,1F0,1B0,0B0,0F1,1F1,1B1,1REDUCE_GRAD,0B1,0REDUCE_GRAD\n");
  CHECK(moves(Reduced::each, false, Pass::training) ==
        "0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD,0F1,1F1,1B1,1REDUCE_GRAD,0B1,0REDUCE_GRAD\n");
  CHECK(moves(Reduced::last, true, Pass::evaluation) ==
        "0UNSHARD,1UNSHARD,0F0,1F0,1B0,0B0,0F1,1F1,1B1,1RESHARD,0B1,0RESHARD\n");

  const auto three = dhp::detail::by_layers({{Kind::forward}, {Kind::backward}}, {0, 3});
  const auto plan = unit_per_layer(3, Reduced::last, true);
  CHECK(text(dhp::detail::with_moves(three, plan, 1, Pass::training)) ==
        "0UNSHARD,1UNSHARD,0F0,0RESHARD,2UNSHARD,1F0,2F0,2B0,2REDUCE_GRAD,2RESHARD,0UNSHARD,1B0,"
        "1REDUCE_GRAD,1RESHARD,0B0,0RESHARD,0REDUCE_GRAD\n");
  // A weight gradient needs no weights.
  const auto split = dhp::detail::by_layers(
      {{Kind::forward}, {Kind::backward_input}, {Kind::backward_weight}}, {0, 3});
  CHECK(text(dhp::detail::with_moves(split, plan, 1, Pass::training)) ==
        "0UNSHARD,1UNSHARD,0F0,0RESHARD,2UNSHARD,1F0,2F0,2I0,2RESHARD,0UNSHARD,1I0,1RESHARD,0I0,"
        "2W0,2REDUCE_GRAD,1W0,1REDUCE_GRAD,0W0,0RESHARD,0REDUCE_GRAD\n");
  // Without micro-batches the reduces remain, because all replicas take part in them.
  CHECK(text(dhp::detail::with_moves({}, plan, 0, Pass::training)) ==
        "2REDUCE_GRAD,1REDUCE_GRAD,0REDUCE_GRAD\n");
}

TEST_CASE("moves: those of every schedule are correct") {
  for (const int stages : {1, 2, 4})
    for_each_case(stages, {0, 1, 2, 5},
                  [](const Case& of) { CHECK(complaint(of.list, of) == ""); });
}

TEST_CASE("moves: weights are gathered one pass ahead, for at most two layers") {
  const auto check_case = [](const Case& of) {
    std::vector<int> here, at_last_pass;
    bool first = true;
    for (const auto& action : of.list) {
      if (action.kind == Kind::unshard) here.push_back(action.unit());
      if (action.kind == Kind::reshard) std::erase(here, action.unit());
      CHECK(here.size() <= 2);
      if (dhp::detail::is_move(action)) continue;
      for (const int unit : of.plan.needs(action))
        CHECK((first || std::count(at_last_pass.begin(), at_last_pass.end(), unit) == 1));
      first = false;
      at_last_pass = here;
    }
  };
  for_each_case(2, {1, 4}, check_case, {unit_per_layer});
}

/// Lets body(list, position) change each move of this kind, one at a time. Returns each error once, without numbers.
std::string refusals(Kind kind, FunctionRef<void(List&, std::ptrdiff_t)> body) {
  std::set<std::string> errors;
  for_each_case(2, {1, 3}, [&](const Case& of) {
    for (std::ptrdiff_t at = 0; at < std::ssize(of.list); ++at) {
      if (of.list[dhp::detail::as_size(at)].kind != kind) continue;
      auto list = of.list;
      body(list, at);
      auto sentence = complaint(list, of);
      if (const auto name = sentence.find(") "); name < sentence.size())
        sentence.erase(0, name + 2);
      std::erase_if(sentence, [](char c) { return c >= '0' && c <= '9'; });
      errors.insert(sentence.empty() ? "nothing" : sentence);
    }
  });
  std::string all;
  for (const auto& sentence : errors) all += sentence + "\n";
  return all;
}

TEST_CASE("moves: a missing move is refused") {
  const auto drop = [](List& list, std::ptrdiff_t at) { list.erase(list.begin() + at); };
  CHECK(refusals(Kind::unshard, drop) == "runs without the weights of unit \n");
  CHECK(refusals(Kind::reshard, drop) ==
        "gathers weights that are there\n"
        "schedule: unit  stays unsharded at the end of the list\n");
  CHECK(refusals(Kind::reduce, drop) ==
        "comes where all replicas reduce unit \n"
        "schedule: the list ends without the reduce of unit \n");
}
TEST_CASE("moves: a duplicate move is refused") {
  const auto twice = [](List& list, std::ptrdiff_t at) {
    list.insert(list.begin() + at, list[dhp::detail::as_size(at)]);
  };
  CHECK(refusals(Kind::unshard, twice) == "gathers weights that are there\n");
  CHECK(refusals(Kind::reshard, twice) == "frees weights that are not there\n");
  CHECK(refusals(Kind::reduce, twice) ==
        "comes once too often\n"
        "comes where all replicas reduce unit \n");
}
TEST_CASE("moves: a reduce before its gradients are complete is refused") {
  CHECK(refusals(Kind::reduce,
                 [](List& list, std::ptrdiff_t at) {
                   auto before = at - 1;
                   while (list[dhp::detail::as_size(before)].kind == Kind::reshard) --before;
                   std::rotate(list.begin() + before, list.begin() + at, list.begin() + at + 1);
                 }) ==
        "comes before the weight gradients of chunk  are complete: it has  of  micro-batches\n"
        "comes where all replicas reduce unit \n");
}
TEST_CASE("moves: freeing weights that are still needed is refused") {
  CHECK(refusals(Kind::unshard, [](List& list, std::ptrdiff_t at) {
          const auto unit = list[dhp::detail::as_size(at)].unit();
          list.insert(list.begin() + at + 1, {Kind::reshard, unit});
        }) == "frees weights that wait for their use\n");
  const MovePlan plan(1, {{{0}, MovedUnit::Reduced::last, true}});
  const Case of{
      {{Kind::unshard}, {Kind::forward}, {Kind::reshard}, {Kind::backward}, {Kind::reduce}},
      plan,
      1,
      Pass::training};
  CHECK(has(complaint(of.list, of),
            "position 3 (backward of micro-batch 0 in chunk 0) runs without "
            "the weights of unit 0"));
}
TEST_CASE("moves: a reduce across stages comes after the last pass") {
  const MovePlan plan(2, {{{1}, MovedUnit::Reduced::end}});
  const Case of{{}, plan, 1, Pass::training};
  const auto passes = dhp::detail::by_layers({{Kind::forward}, {Kind::backward}}, {0, 2});
  CHECK(text(dhp::detail::with_moves(passes, plan, 1, Pass::training)) ==
        "0F0,1F0,1B0,0B0,0REDUCE_GRAD\n");
  auto early = passes;
  early.insert(early.end() - 1, {Kind::reduce});
  CHECK(has(complaint(early, of), "comes after the reduce of a unit that other stages add to"));
}
TEST_CASE("moves: a move outside the plan is refused") {
  const Case of{{}, unit_per_layer(1, MovedUnit::Reduced::last, false), 0, Pass::training};
  CHECK(has(complaint({{Kind::reduce, 1}}, of), "does not exist: a stage has 1 unit"));
  CHECK(has(complaint({{Kind::unshard, 0}}, of), "moves weights that are not sharded"));
  CHECK(has(complaint({{Kind::forward}}, of), "does not exist: a stage has 0 micro-batches"));
}

}  // namespace
