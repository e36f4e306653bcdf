// dhp_schedules compares the built-in schedules with the shortest one under a memory limit. It can write the shortest
// one as a file for --schedule of the trainers.
#include <dhp/parallel/fixed_schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "../options/checked_options.hpp"
#include "../report/output_file.hpp"
#include "../report/progress.hpp"
#include "shortest_schedule.hpp"

#include <cstdio>

namespace {

using namespace examples;

// In this file, memory and costs of a ScheduleProblem are those of a whole stage, of which each part takes a share.

/// Stages, micro-batches and memory.
constexpr std::tuple<int, int, int> cases[] = {{2, 4, 1}, {3, 6, 2}, {4, 4, 4},  {4, 8, 2},
                                               {4, 8, 3}, {4, 8, 4}, {6, 12, 3}, {6, 12, 6},
                                               {8, 8, 8}, {8, 16, 6}};

dhp::ActionCosts costs_of(const ScheduleProblem& of) {
  return {1.0 * of.forward, 1.0 * of.backward_input, 1.0 * of.backward_weight};
}

/// Returns the time in slots of a part, and whether the memory suffices.
std::pair<int, bool> timed(const dhp::StageLists& lists, const ScheduleProblem& of, int chunks) {
  constexpr int messages = 4;  // message buffers that every engine has from one rank to another
  const auto report = dhp::check_schedule(lists, chunks, of.micro_batches, messages);
  return {static_cast<int>(std::lround(dhp::simulate(lists, costs_of(of)).makespan)),
          std::ranges::max(report.max_until_weight_gradient) <= chunks * of.memory};
}

/// Returns the shortest built-in schedule, unless a search finds a shorter one. Lengths are in slots of a part.
ShortestSchedule shortest(ScheduleProblem of, double seconds) {
  const int chunks = of.chunks();
  ShortestSchedule known;
  for (const auto& schedule : dhp::built_in_schedules()) {
    if (schedule.v_shaped() != of.v_shaped || schedule.needed_chunks().value_or(chunks) != chunks)
      continue;
    auto lists = dhp::all_stages(schedule, of.stages, of.micro_batches, chunks);
    const auto [length, fits] = timed(lists, of, chunks);
    if (fits && length < known.length.value_or(length + 1))
      known.length = length, known.lists = std::move(lists);
  }
  of.memory *= chunks;
  auto found = ScheduleSearch(of, seconds).run(known.length);
  if (!found.length) found.length = known.length, found.lists = std::move(known.lists);
  else found.length = timed(found.lists, of, chunks).first;  // the found one may wait needlessly
  return found;
}

/// Returns a length in slots of a whole stage.
std::string slots(std::optional<int> length, int chunks) {
  return length ? short_number(1.0 * *length / chunks) : "?";
}

void print_case(ScheduleProblem of, double seconds) {
  std::printf("%2d %3d %3d |", of.stages, of.micro_batches, of.memory);
  std::string why;
  for (const bool v : {false, true}) {
    of.v_shaped = v;
    const auto best = shortest(of, seconds);
    const auto least = slots(best.at_least, of.chunks());
    const auto range = best.proven() ? "" : least + "..";
    std::printf(" %9s", (range + slots(best.length, of.chunks())).c_str());
    why += dhp::concat(v ? "; V: " : "one part: ", best.proven() ? "" : "not proven; ", "at least ",
                       least, " by ", best.because);
  }
  std::printf(" |");
  for (const auto& schedule : dhp::built_in_schedules()) {
    const int chunks = schedule.needed_chunks().value_or(2);
    const auto lists = dhp::all_stages(schedule, of.stages, of.micro_batches, chunks);
    const auto [length, fits] = timed(lists, of, chunks);
    const auto text = slots(length, chunks);
    std::printf(" %*s", static_cast<int>(std::max<std::size_t>(6, schedule.name().size())),
                (fits ? text : "(" + text + ")").c_str());
  }
  std::printf("\n           %s\n", why.c_str());
  std::fflush(stdout);
}

void print_table(ScheduleProblem of, double seconds) {
  std::printf(
      "Slots of a step; in brackets where more than the memory is held. Searches end after "
      "%s s each.\n\n p   m mem |  shortest      in V |",
      short_number(seconds).c_str());
  for (const auto& schedule : dhp::built_in_schedules())
    std::printf(" %6s", schedule.name().c_str());
  std::printf("\n");
  for (const auto& each : cases) {
    std::tie(of.stages, of.micro_batches, of.memory) = each;
    print_case(of, seconds);
  }
}

/// Inserts the moves of ZeRO 3, where each part of the model is one unit of weights.
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

void write_one(const ScheduleProblem& of, double seconds, bool moves, const std::string& file) {
  const OutputFile csv("--csv", file);
  auto best = shortest(of, seconds);
  dhp::check(!best.lists.empty(), "no schedule was found in ", seconds,
             " s; give --seconds more, or --memory");
  std::printf("%s%s slots, %s; at least %s by %s\n", dhp::draw(best.lists, costs_of(of)).c_str(),
              slots(best.length, of.chunks()).c_str(),
              best.proven() ? "proven" : "not proven to be the shortest",
              slots(best.at_least, of.chunks()).c_str(), best.because.c_str());
  if (moves) insert_moves(best.lists, of.chunks(), of.micro_batches);
  csv.write(dhp::FixedSchedule::to_csv(best.lists));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app(
      "Searches for the shortest schedule of a pipeline under a memory limit, with a lower bound "
      "on its length. Without --stages: a table that compares it with the built-in schedules.");
  ScheduleProblem of{0, 8, 0};
  bool moves = false;
  double seconds = 10;
  std::string file;
  app.option_defaults()->always_capture_default();
  app.add_option("--stages", of.stages, "Stages; 0: table of ten pipelines", number_up_to(8));
  app.add_option("--micro-batches", of.micro_batches, "Micro-batches per step",
                 number_from_to(1, 100));
  app.add_option("--memory", of.memory,
                 "Micro-batches whose activations fit into a stage's memory; 0: as many as stages",
                 number_up_to(100));
  app.add_flag("--v", of.v_shaped, "Two parts of the model per stage, in a V");
  app.add_option("--forward", of.forward, "Slots of a stage's forward pass", number_from_to(1, 50));
  app.add_option("--backward-input", of.backward_input, "Slots of a stage's input gradient",
                 number_from_to(1, 50));
  app.add_option("--backward-weight", of.backward_weight, "Slots of a stage's weight gradient",
                 number_from_to(1, 50));
  app.add_option("--seconds", seconds, "Seconds after which a search ends", positive_number());
  app.add_option("--csv", file, "File for the schedule, to use as --schedule FILE of the trainers");
  app.add_flag("--moves", moves,
               "Also write to the file when ZeRO 3 moves weights and gradients of whole parts");
  const auto check = [&] {
    for (const auto* const name : {"--micro-batches", "--memory", "--v", "--csv", "--moves"})
      dhp::check(of.stages > 0 || app.get_option(name)->count() == 0, name,
                 " is for one pipeline: give its --stages");
    dhp::check(!moves || !file.empty(), "--moves needs --csv FILE");
    dhp::check(file.empty() || file.ends_with(".csv") || OutputFile("--csv", file).is_stream(),
               "--csv ", file,
               ": its name does not end in .csv, by which --schedule of the trainers knows a file");
  };
  if (const auto status = app.read(argc, argv, check)) return *status;
  return exit_status_of([&] {
    if (of.memory == 0) of.memory = of.stages;
    if (of.stages == 0) print_table(of, seconds);
    else write_one(of, seconds, moves, file);
    return 0;
  });
}
