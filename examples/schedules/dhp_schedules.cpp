// dhp_schedules compares the built-in schedules with the shortest one under a memory limit. It can write the shortest
// one as a file for --schedule of the trainers.
#include <dhp/core/system_error.hpp>
#include <dhp/parallel/fixed_schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "../options/checked_options.hpp"
#include "../report/progress.hpp"
#include "shortest_schedule.hpp"

#include <cstdio>
#include <fstream>

namespace {

using namespace examples;

/// memory: limit in activations of a whole stage.
struct Case {
  int stages, micro_batches, memory;
};
constexpr Case cases[] = {{2, 4, 1}, {3, 6, 2},  {4, 4, 4},  {4, 8, 2}, {4, 8, 3},
                          {4, 8, 4}, {6, 12, 3}, {6, 12, 6}, {8, 8, 8}, {8, 16, 6}};

/// Costs of a whole stage; each of its two parts takes half.
struct Costs {
  int forward = 1, backward_input = 1, backward_weight = 1;
};

struct Timed {
  double length;  ///< time in slots of a whole stage
  bool fits;
};

Timed timed(const dhp::StageLists& lists, const Case& of, int chunks, const Costs& costs) {
  constexpr int messages = 4;  // message buffers that every engine has from one rank to another
  const auto report = dhp::check_schedule(lists, chunks, of.micro_batches, messages);
  const dhp::ActionCosts part{1.0 * costs.forward / chunks, 1.0 * costs.backward_input / chunks,
                              1.0 * costs.backward_weight / chunks};
  return {dhp::simulate(lists, part).makespan,
          std::ranges::max(report.most_until_weight_gradient) <= chunks * of.memory};
}

/// The shortest schedule with one part per stage, or with two in a V.
struct Best {
  double at_least, length;
  std::string because;
  dhp::StageLists lists;
  [[nodiscard]] bool proven() const { return length <= at_least; }
};

Best shortest(const Case& of, bool v_shaped, const Costs& costs, double seconds) {
  const ScheduleProblem problem{
      of.stages,     of.micro_batches,     of.memory * (v_shaped ? 2 : 1), v_shaped,
      costs.forward, costs.backward_input, costs.backward_weight};
  Best best{0, HUGE_VAL, "", {}};
  for (const auto& schedule : dhp::built_in_schedules()) {
    if (schedule.v_shaped() != v_shaped ||
        schedule.needed_chunks().value_or(problem.chunks()) != problem.chunks())
      continue;
    auto lists = dhp::all_stages(schedule, of.stages, of.micro_batches, problem.chunks());
    const auto [length, fits] = timed(lists, of, problem.chunks(), costs);
    if (fits && length < best.length) best.length = length, best.lists = std::move(lists);
  }
  // The search counts time in slots of a part of a stage, `best` in slots of a whole stage.
  std::optional<int> known;
  if (best.length < HUGE_VAL) known = static_cast<int>(std::lround(best.length * problem.chunks()));
  auto found = ScheduleSearch(problem, seconds).run(known);
  best.at_least = 1.0 * found.at_least / problem.chunks();
  best.because = std::move(found.because);
  if (found.length) {
    best.lists = std::move(found.lists);
    best.length = timed(best.lists, of, problem.chunks(), costs).length;
  }
  return best;
}

std::string number(double value) {
  if (value == HUGE_VAL) return "?";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}
std::string in_words(const Best& best) {
  if (best.proven()) return number(best.length);
  return dhp::concat(number(best.at_least), "..", number(best.length));
}

void print_case(const Case& of, const Costs& costs, double seconds) {
  std::printf("%2d %3d %3d |", of.stages, of.micro_batches, of.memory);
  std::string why;
  for (const bool v : {false, true}) {
    const auto best = shortest(of, v, costs, seconds);
    std::printf(" %9s", in_words(best).c_str());
    why += dhp::concat(v ? "; V: " : "one part: ", best.proven() ? "" : "not proven; ", "at least ",
                       number(best.at_least), " by ", best.because);
  }
  std::printf(" |");
  for (const auto& schedule : dhp::built_in_schedules()) {
    const int chunks = schedule.needed_chunks().value_or(2);
    const auto lists = dhp::all_stages(schedule, of.stages, of.micro_batches, chunks);
    const auto [length, fits] = timed(lists, of, chunks, costs);
    std::printf(" %*s", static_cast<int>(std::max<std::size_t>(6, schedule.name().size())),
                (fits ? number(length) : "(" + number(length) + ")").c_str());
  }
  std::printf("\n           %s\n", why.c_str());
  std::fflush(stdout);
}

void print_table(const Costs& costs, double seconds) {
  std::printf(
      "Slots of a step; in brackets where more than the memory is held. Searches end after "
      "%s s each.\n\n",
      number(seconds).c_str());
  std::printf(" p   m mem |  shortest      in V |");
  for (const auto& schedule : dhp::built_in_schedules())
    std::printf(" %6s", schedule.name().c_str());
  std::printf("\n");
  for (const auto& of : cases) print_case(of, costs, seconds);
}

/// With the moves of ZeRO 3, where each part of the model is one unit of weights.
void insert_moves(dhp::StageLists& lists, int chunks, int micro_batches) {
  std::vector<dhp::detail::MovedUnit> units;
  for (int chunk = 0; chunk < chunks; ++chunk)
    units.push_back({.chunks = {chunk}, .sharded = true});
  const dhp::detail::MovePlan plan(chunks, std::move(units));
  for (auto& list : lists) {
    list = dhp::detail::with_moves(list, plan, micro_batches, dhp::detail::Pass::training);
    dhp::detail::check_moves(list, plan, micro_batches, dhp::detail::Pass::training);
  }
}

void write_one(const Case& of, bool v_shaped, const Costs& costs, double seconds, bool moves,
               const std::string& file) {
  std::ofstream out;
  if (!file.empty()) {
    out.open(file);
    dhp::detail::check_system(out.is_open(), "cannot write --csv ", file);
  }
  auto best = shortest(of, v_shaped, costs, seconds);
  dhp::check(!best.lists.empty(), "no schedule was found in ", seconds,
             " s; give --seconds more, or --memory");
  std::printf(
      "%s%s slots, %s; at least %s by %s\n",
      dhp::draw(best.lists,
                {1.0 * costs.forward, 1.0 * costs.backward_input, 1.0 * costs.backward_weight})
          .c_str(),
      number(best.length).c_str(), best.proven() ? "proven" : "not proven to be the shortest",
      number(best.at_least).c_str(), best.because.c_str());
  if (file.empty()) return;
  if (moves) insert_moves(best.lists, v_shaped ? 2 : 1, of.micro_batches);
  out << dhp::FixedSchedule::to_csv(best.lists) << std::flush;
  dhp::detail::check_system(out.good(), "cannot write --csv ", file);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "The shortest schedule of a pipeline under a limit of memory, or how far it can be at most "
      "from what was found, beside the schedules that have a name. Without --stages: a table.");
  Case of{0, 8, 0};
  Costs costs;
  bool v_shaped = false, moves = false;
  double seconds = 10;
  std::string file;
  app.option_defaults()->always_capture_default();
  app.add_option("--stages", of.stages, "Of the pipeline; 0: the table of ten")
      ->check(number_up_to(8));
  app.add_option("--micro-batches", of.micro_batches, "Of a step")->check(number_from_to(1, 100));
  app.add_option("--memory", of.memory,
                 "Activations that a stage has room for, of a micro-batch; 0: as many as stages")
      ->check(number_up_to(100));
  app.add_flag("--v", v_shaped, "Two parts of the model per stage, in a V");
  app.add_option("--forward", costs.forward, "Slots of a stage's forward")
      ->check(number_from_to(1, 50));
  app.add_option("--backward-input", costs.backward_input, "Of its input gradient")
      ->check(number_from_to(1, 50));
  app.add_option("--backward-weight", costs.backward_weight, "Of its weight gradient")
      ->check(number_from_to(1, 50));
  app.add_option("--seconds", seconds, "After which a search ends")->check(positive_number());
  app.add_option("--csv", file, "Writes the schedule for --schedule FILE of the trainers");
  app.add_flag("--moves", moves,
               "The file also says when ZeRO 3 moves weights and gradients of whole parts");
  const auto check = [&] {
    for (const auto* const name : {"--micro-batches", "--memory", "--v", "--csv", "--moves"})
      dhp::check(of.stages > 0 || app.get_option(name)->count() == 0, name,
                 " is of one pipeline: give its --stages");
    dhp::check(!moves || !file.empty(), "--moves is for the file of --csv");
  };
  if (const auto status = app.read(argc, argv, check)) return *status;
  return exit_status_of([&] {
    if (of.memory == 0) of.memory = of.stages;
    if (of.stages == 0) print_table(costs, seconds);
    else write_one(of, v_shaped, costs, seconds, moves, file);
    return 0;
  });
}
