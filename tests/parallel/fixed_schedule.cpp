// Schedules as text in PyTorch's form: a written schedule is read back unchanged, and errors name line and cell.
#include <dhp/parallel/fixed_schedule.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <tests/support/tensors.hpp>

namespace {

StageLists lists_of(const std::string& csv) {
  return FixedSchedule::from_csv("mine.csv", csv).lists;
}

TEST_CASE("fixed schedule: every built-in schedule survives a round trip") {
  for (const auto& schedule : built_in_schedules())
    for (const int stages : {1, 2, 3})
      for (const int micro_batches : {1, 3, 6})
        for (const int chunks :
             {schedule.needed_chunks().value_or(1), schedule.needed_chunks().value_or(2)}) {
          const auto lists = all_stages(schedule, stages, micro_batches, chunks);
          auto found = FixedSchedule::from_csv("mine.csv", FixedSchedule::to_csv(lists));
          CHECK(found.needed_chunks == chunks);
          if (stages == 1) found.lists.v_shaped = lists.v_shaped;  // the text is the same
          CHECK(found.lists == lists);
        }
}

TEST_CASE("fixed schedule: parts of the model are numbered across stages, as in PyTorch") {
  CHECK(FixedSchedule::to_csv(all_stages(OneForwardOneBackward{}, 2, 3)) ==
        "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  CHECK(FixedSchedule::to_csv(all_stages(Interleaved{}, 2, 2, 2)) ==
        "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n");
  // In a V the parts run through the stages and back, and turn on the last stage.
  const auto v = FixedSchedule::to_csv(all_stages(ZeroBubbleV{}, 2, 1));
  CHECK(v == "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2I0,2W0,1I0,1W0\n");
  CHECK(has(message_of([] { (void)lists_of("0F0,3F0\n1F0,3F0"); }),
            "line 2, cell 2: 3F0 is of a part that stage 0 of 2 holds"));
  CHECK(has(message_of([] { (void)lists_of("0F0\n1F0,3F0\n2F0"); }),
            "line 2, cell 2: 3F0 is of a part that stage 0 of 3 holds"));
  // Idle cells, spaces and the line ends of Windows are accepted.
  CHECK(lists_of("0F0,0F1,,, 0I0,0W0,0I1,0W1\r\n,1F0,1I0,1F1,1W0,1I1,1W1,\r\n") ==
        lists_of("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1W0,1I1,1W1"));
  for (const auto* nothing : {"", "\n \r\n"}) CHECK(lists_of(nothing).empty());
  // So are a byte order mark and blank lines at the end, which spreadsheets and editors write.
  CHECK(lists_of("\xEF\xBB\xBF"
                 "0F0,0B0\r\n1F0,1B0\r\n\r\n \n") == lists_of("0F0,0B0\n1F0,1B0\n"));
}

TEST_CASE("fixed schedule: moves are written and read, but not passed to a pipeline") {
  const auto text =
      "0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD,0REDUCE_GRAD\n1UNSHARD,1F0,1B0,1F1,1B1,1RESHARD,"
      "1REDUCE_GRAD\n";
  const auto read = FixedSchedule::from_csv("mine.csv", text);
  CHECK(read.lists[1].front() == Action{Action::Kind::unshard, 0, 0});
  CHECK(read.lists[1].back() == Action{Action::Kind::reduce, 0, 0});
  CHECK(FixedSchedule::to_csv(read.lists) == text);
  CHECK(all_stages(read, 2, 2) == lists_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"));
}

TEST_CASE("fixed schedule: B means the input gradient if the weights have their own action") {
  CHECK(lists_of("0F0,0F1,0B0,0W0,0B1,0W1\n1F0,1B0,1F1,1B1,1W1\n") ==
        lists_of("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1B0,1F1,1I1,1W1\n"));
}

TEST_CASE("fixed schedule: an invalid cell is refused with its place") {
  for (const char* cell : {"1X0", "F0", "1F", "1", "1F-1", "-1F0", "1F0x", "1FF0", "1F99999999999",
                           "99999999999F0", "1 F0", "1UNSHARD0", "1SHARD", "UNSHARD"})
    CHECK(has(message_of([&] { (void)lists_of(concat("0F0\n1F0,", cell)); }),
              concat("mine.csv, line 2, cell 2: \"", cell,
                     "\" is no action; give the part of the model")));
  CHECK(message_of([] { (void)lists_of(std::string(100'000, '\0')); }).size() < 300);
  CHECK(has(message_of([] { (void)lists_of("0F0,1B0\n1F0\n"); }),
            "mine.csv, line 1, cell 2: 1B0 is of a part that stage 1 of 2 holds, and belongs into "
            "line 2"));
}

TEST_CASE("fixed schedule: smaller steps leave out micro-batches, and larger ones are refused") {
  const GPipe gpipe;
  const AnySchedule schedule = FixedSchedule{"mine.csv", all_stages(gpipe, 2, 4)};
  CHECK(schedule.name() == "mine.csv");
  for (int micro_batches = 0; micro_batches <= 4; ++micro_batches) {
    const auto lists = all_stages(schedule, 2, micro_batches);
    CHECK(lists == all_stages(gpipe, 2, micro_batches));
    CHECK_NOTHROW((void)check_schedule(lists, 1, micro_batches, 1));
  }
  CHECK(has(message_of([&] { (void)schedule.actions(0, 2, 5); }),
            "schedule mine.csv is for 4 micro-batches, and a step has 5 on a replica"));
  CHECK(has(message_of([&] { (void)schedule.actions(0, 3, 4); }),
            "schedule mine.csv is for 2 stages, and the pipeline axis has 3; choose a pipeline "
            "axis of 2, or another schedule"));
}

}  // namespace
