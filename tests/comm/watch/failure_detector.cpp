#include <dhp/comm/watch/failure_detector.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using dhp::detail::FailureDetector, dhp::detail::RankState;

// Call 1 of a series, by default of the world's calls.
RankState::OpenCall call(const std::string& what, double age_s, std::vector<int> needs = {},
                         const std::string& series = "world") {
  return {series, 1, what, what, "a.cpp:1", age_s, std::move(needs)};
}
// A world of three ranks. update() and cause() report the states of the given ranks at time now_s.
struct Three {
  FailureDetector detector{3, {30}};
  RankState states[3];
  std::uint64_t beat = 0;
  Three() {
    for (int rank = 0; rank < 3; ++rank) {
      states[rank].name = concat("host ", static_cast<char>('a' + rank));
      states[rank].limit = {30};
    }
  }
  void update(double now_s, std::initializer_list<int> ranks = {0, 1, 2}) {
    ++beat;
    for (const int rank : ranks) {
      states[rank].beat = beat;
      detector.update(rank, states[rank], now_s);
    }
  }
  // The detector's verdict after a report of these ranks.
  std::string cause(double now_s, std::initializer_list<int> ranks = {0, 1, 2}) {
    update(now_s, ranks);
    return detector.find_failure(now_s);
  }
  // These ranks have been in a collective of all ranks for age_s.
  void all_in(const std::string& what, double age_s, std::initializer_list<int> ranks) {
    for (const int rank : ranks) {
      states[rank].under_way = {call(what, age_s, {0, 1, 2})};
      std::erase(states[rank].under_way.front().needs, rank);
      states[rank].reached["world"] = 1;
    }
  }
};

TEST_CASE("failure detector: no failure is found while ranks progress or have finished") {
  Three world;
  CHECK(world.cause(100) == "");
  world.states[0].under_way = {call("barrier", 29, {1})};
  world.states[1].under_way = {call("barrier", 1)};
  CHECK(world.cause(129) == "");
  CHECK(!world.detector.all_finished());
  for (auto& state : world.states) {
    state.finished = true;
    state.under_way.clear();
  }
  world.update(130);
  CHECK(world.detector.all_finished());
  CHECK(world.detector.find_failure(1000) == "");  // finished ranks may be silent
}

TEST_CASE("failure detector: a rank's own failure comes before a lost connection") {
  Three world;
  world.states[2].failed = "the disk is full";
  world.states[1].lost = {2};
  world.update(100);
  CHECK(world.detector.find_failure(110) == "rank 2: the disk is full");
}

TEST_CASE("failure detector: a lost connection counts only if that rank is silent, too") {
  Three world;
  world.states[0].lost = {2};
  world.states[2].last = "barrier at b.cpp:2";
  world.update(100);
  CHECK(world.detector.find_failure(100.5) == "");
  world.update(101, {0, 1});
  CHECK(world.detector.find_failure(101.2) ==
        "rank 2 (host c) is gone: rank 0 has lost its connection to it in no call, and it has not "
        "been heard of "
        "for 1.2 s; its last call was barrier at b.cpp:2");
  world.states[0].lost = {17};  // there is no such rank
  world.update(200);
  CHECK(world.detector.find_failure(201) == "");
}

TEST_CASE("failure detector: a rank that left the store is gone at once, unless it has finished") {
  Three world;
  world.states[1].finished = true;
  world.states[2].last = "barrier at a.cpp:1";
  world.update(100);
  world.detector.leave(1);
  CHECK(world.detector.find_failure(100) == "");
  world.detector.leave(2);
  world.all_in("recv", 0.1, {0});
  world.states[0].under_way.front().needs = {2};
  CHECK(world.cause(100, {0, 1}) ==
        "rank 2 (host c) is gone: its connection to the store has ended; its last call was barrier "
        "at "
        "a.cpp:1; rank 0 is in recv at a.cpp:1");
  world.states[0].ended = world.states[1].ended = true;
  world.update(100, {0, 1});
  CHECK(world.detector.all_ended(100));  // rank 2, which is gone, need not hear of the end
}

TEST_CASE("failure detector: a rank that is gone explains another rank's failure") {
  Three world;
  world.states[1].failed = "a library says that some process has exited";
  world.update(100);
  world.detector.leave(2);
  CHECK(has(world.detector.find_failure(100), "rank 2 (host c) is gone"));
  world.states[2].failed = "the disk is full";  // rank 2 reported this before it left
  world.states[1].failed = "";
  CHECK(world.cause(101) == "rank 2: the disk is full");
}

TEST_CASE("failure detector: a call waits for the ranks that have not entered it") {
  Three world;
  world.all_in("all_reduce of 5 f32 (sum)", 29, {0, 1});
  world.states[2].reached = {{"world.1@0", 8}};  // calls of another group
  world.states[2].last = "barrier at b.cpp:2";
  world.states[2].last_age_s = 29.5;
  CHECK(world.cause(100) == "");
  world.all_in("all_reduce of 5 f32 (sum)", 31, {0, 1});
  CHECK(world.cause(102) ==
        "rank 0 waits in all_reduce of 5 f32 (sum) at a.cpp:1 for rank 2 (host c), which is alive "
        "and in no call; its last one, barrier at b.cpp:2, ended 29 s ago, beyond the time limit "
        "of 30 s; a larger limit waits longer");
  world.states[2].reached["world"] = 1;
  CHECK(world.cause(103) ==
        "rank 0 is in all_reduce of 5 f32 (sum) at a.cpp:1, to which all its ranks have come, but "
        "the network between them has not carried it for 31 s, beyond the time limit of 30 s; a "
        "larger limit waits longer");
}

TEST_CASE("failure detector: different calls of one group are found before any limit") {
  Three world;
  world.states[0].under_way = {call("all_reduce of 5 f32 (sum)", 0.1, {1})};
  world.states[2].under_way = {call("all_reduce of 7 f32 (sum)", 0.1, {0})};
  CHECK(world.cause(100) ==
        "ranks do not agree: rank 0 calls all_reduce of 5 f32 (sum) at a.cpp:1, rank 2 calls "
        "all_reduce of 7 f32 (sum) at a.cpp:1");
  world.states[2].under_way.front().at = 2;  // rank 0 has not come to call 2
  CHECK(world.cause(101) == "");
  world.states[2].under_way.front() = call("barrier", 0.1, {}, "world.1@2");  // another group
  CHECK(world.cause(102) == "");
  // The sender's call has ended already.
  world.states[0].under_way = {call("message of 3 f32", 0.1, {2}, "world:2>0")};
  world.states[2].sent = {call("message of 2 f32", 0, {}, "world:2>0")};
  CHECK(has(world.cause(103), "rank 2 calls message of 2 f32 at a.cpp:1"));
}

TEST_CASE("failure detector: a late rank that is silent is described as such") {
  Three world;
  world.states[0].under_way = {call("barrier", 31, {2})};
  world.states[2].last = "all_gather at b.cpp:2";
  world.update(100);
  CHECK(has(world.cause(105, {0, 1}),
            "for rank 2 (host c), which has not been heard of for 5.0 s (it is stopped or cannot "
            "be reached); its last call was all_gather at b.cpp:2, beyond"));
}

TEST_CASE("failure detector: of a chain of waits the last rank is named, of a cycle any") {
  Three world;
  world.states[0].under_way = {call("barrier", 31, {1})};
  world.states[1].under_way = {call("recv of a message of 3 f32", 20, {2}, "x")};
  CHECK(has(world.cause(100), "rank 1 waits in recv of a message of 3 f32 at a.cpp:1 for rank 2"));
  world.states[2].under_way = {call("recv of a message of 3 f32", 20, {0}, "y")};
  CHECK(has(world.cause(101), " waits in "));
}

TEST_CASE("failure detector: a silent rank is blamed, even if other ranks wait, too") {
  Three world;
  // Rank 2's link is cut during a sum that all ranks have joined.
  world.all_in("all_reduce", 26, {0, 1, 2});
  world.update(100);
  world.all_in("all_reduce", 30.5, {0, 1});
  world.states[0].under_way.push_back(call("barrier", 28, {1}, "x"));
  CHECK(world.cause(104.5, {0, 1}) ==
        "rank 0 waits in all_reduce at a.cpp:1 for rank 2 (host c), which has not been heard of "
        "for 4.5 s (it is stopped or cannot be reached); it was in all_reduce at a.cpp:1, beyond "
        "the time limit of 30 s; a larger limit waits longer");
}

TEST_CASE("failure detector: the last known wait of a silent rank blames no other rank") {
  Three world;
  world.states[2].under_way = {call("recv of a message of 3 f32", 29, {1})};
  world.update(100);
  CHECK(world.cause(105, {0, 1}) == "");
  CHECK(has(world.cause(131, {0, 1}), "rank 2 (host c) has not been heard of for 31 s"));

  // Ranks 0 and 1 are on a host that is cut off.
  world.states[0].under_way = {call("barrier", 29, {1})};
  world.states[2].under_way = {call("barrier", 29, {1})};
  world.update(200);
  CHECK(world.cause(204, {2}) == "");
  world.states[2].under_way = {call("barrier", 31, {1})};
  CHECK(has(world.cause(205, {2}),
            "rank 2 waits in barrier at a.cpp:1 for rank 1 (host b), "
            "which has not been heard of for 5.0 s"));
}

TEST_CASE("failure detector: a wait for a finished rank fails, except for messages it has sent") {
  Three world;
  world.states[1].finished = true;
  world.states[1].reached = {{"world:1>0", 7}};
  world.states[0].under_way = {call("recv of a message of 3 f32", 6, {1}, "world:1>0")};
  world.states[2].under_way = {call("send of a message of 3 f32", 0.5, {1}, "world:2>1")};
  CHECK(world.cause(100) == "");
  world.states[0].under_way.front().at = 8;
  CHECK(world.cause(101) ==
        "rank 0 waits in recv of a message of 3 f32 at a.cpp:1 for rank 1 (host b), which has "
        "finished");
  world.states[0].under_way.clear();
  world.states[2].under_way.front().age_s = 1.5;  // rank 2 has waited 1.5 s for room to send
  CHECK(has(world.cause(102), "rank 2 waits in send of a message of 3 f32"));
}

TEST_CASE("failure detector: a silent rank is named, even if it was never heard of") {
  Three world;
  CHECK(world.cause(100, {0, 1}) == "");
  CHECK(has(world.cause(131, {0, 1}),
            "rank 2 has not been heard of for 31 s: it is stopped or "
            "cannot be reached; it had reported no call, beyond"));
}

TEST_CASE("failure detector: without a limit no rank is late") {
  FailureDetector detector(2, {});
  RankState state;
  state.beat = 1;
  state.under_way = {call("barrier", 1e6, {1})};
  detector.update(0, state, 0);
  CHECK(detector.find_failure(1e7) == "");
}

// Ranks that report their own limits.
struct Learned : Three {
  Learned() {
    detector = FailureDetector(3, {7});
    for (auto& state : states) state.limit = step;
  }
  detail::TimeLimit step{30, "for a step, 10 times its median"}, saving{600, "for saving"};
};

TEST_CASE("failure detector: limits that ranks report replace the first one") {
  Learned world;
  world.states[0].under_way = {call("barrier", 29, {1})};
  CHECK(world.cause(100) == "");
  world.states[0].under_way = {call("barrier", 31, {1})};
  CHECK(has(world.cause(102),
            "rank 0 waits in barrier at a.cpp:1 for rank 1 (host b), which is alive and has "
            "called nothing yet, beyond the limit of 30 s for a step, 10 times its median; "
            "a fixed limit can be given instead"));
}

TEST_CASE("failure detector: the longest reported limit counts, since sections may differ") {
  Learned world;
  world.states[2].limit = world.saving;
  world.states[0].under_way = {call("barrier", 500, {1})};
  world.states[1].under_way = {call("recv of a message of 3 f32", 500, {2}, "x")};
  CHECK(world.cause(100) == "");
  // Rank 2 has saved. The others need a moment to notice.
  world.states[2].limit = world.step;
  CHECK(world.cause(101) == "");
  for (auto& state : world.states)
    for (auto& waits : state.under_way) waits.age_s = 530;
  CHECK(world.cause(130) == "");
  CHECK(has(world.cause(132), "beyond the limit of 30 s for a step"));
  world.states[1].finished = true;  // limits of finished ranks do not count
  world.states[1].limit = world.saving;
  world.states[1].under_way.clear();
  world.states[0].under_way = {call("barrier", 1, {2})};
  CHECK(world.cause(133) == "");
  world.states[0].under_way = {call("barrier", 31, {2})};
  CHECK(has(world.cause(163, {0, 2}), "beyond the limit of 30 s for a step"));
}

TEST_CASE("failure detector: the end is known once every rank has heard of it or is silent") {
  Three world;
  world.update(100);
  CHECK(!world.detector.all_ended(100));
  world.states[0].ended = world.states[1].finished = true;
  world.update(101, {0, 1});
  CHECK(world.detector.all_ended(102));  // rank 2 is silent
  CHECK(!world.detector.all_ended(100.5));
}

}  // namespace
