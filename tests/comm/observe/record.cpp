#include <dhp/comm/observe/record.hpp>
#include <tests/comm/collectives.hpp>

// run_ranks records the calls of its ranks, so this test records nothing itself.
TEST_CASE("record: every call has a record with the same key on all of its ranks") {
  std::vector<std::shared_ptr<FlightRecorder>> recorders(3);
  for (auto& recorder : recorders) recorder = std::make_shared<FlightRecorder>();
  const auto body = [](Comm<Cpu> world) {
    Cpu dev;
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    world.all_reduce(dev, x.mut()).wait(dev);
    if (world.rank() == 0) {  // refused calls do not count
      (void)message_of([&] { world.broadcast(dev, x.mut(), 3); });
      (void)message_of([&] { world.send(dev, x.share(), 3); });
    }
    auto part = world.split(world.rank() / 2, world.rank());  // 0 and 1; 2
    auto again = world.split(0, -world.rank());               // 2, 1, 0
    again.broadcast(dev, x.mut(), 1).wait(dev);
    if (part.size() == 2) {
      if (part.rank() == 0) part.send(dev, x.share(), 1);
      else part.recv(dev, x.mut(), 0);
      part.barrier();
    }
    if (again.rank() == 0) again.send(dev, x.share(), 2);
    if (again.rank() == 2) again.recv(dev, x.mut(), 0);
    world.barrier();
  };
  run_ranks(3, body, {.timeout_s = 60, .recorders = recorders});
  using Lines = std::vector<std::string>;
  std::vector<Lines> lines;
  for (const auto& recorder : recorders) {
    auto& mine = lines.emplace_back();
    const auto contents = recorder->contents();
    CHECK(contents.under_way.empty());
    for (const auto& record : contents.ended) {
      CHECK(has(to_text(record.call.where), "record.cpp:"));
      CHECK_FALSE(record.failed);
      std::string members;
      for (const int member : record.group->members)
        dhp::detail::append_text(members, concat(" ", member));
      mine.push_back(
          concat(record.key(), members, ", ", record.description(), ", ", record.call.bytes()));
    }
  }
  const Lines both{"world#1 0 1 2, all_reduce of 4 f32 (sum), 16", "world#2 0 1 2, split, 0",
                   "world#3 0 1 2, split, 0",
                   "world.2@2#1 2 1 0, broadcast of 4 f32 from rank 1, 16"};
  const auto with = [&](const Lines& more) {
    auto expected = both;
    expected.insert(expected.end(), more.begin(), more.end());
    expected.push_back("world#4 0 1 2, barrier, 0");
    return expected;
  };
  CHECK(lines[0] ==
        with({"world.1@0:0>1#1 0 1, send of a message of 4 f32, 16", "world.1@0#1 0 1, barrier, 0",
              "world.2@2:2>0#1 2 1 0, recv of a message of 4 f32, 16"}));
  CHECK(lines[1] == with({"world.1@0:0>1#1 0 1, recv of a message of 4 f32, 16",
                          "world.1@0#1 0 1, barrier, 0"}));
  CHECK(lines[2] == with({"world.2@2:2>0#1 2 1 0, send of a message of 4 f32, 16"}));
}
