#include <dhp/comm/watch/deadlines.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using Time = Deadlines::Clock::time_point;

Time at(double s) {
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(s)));
}
double s_of(Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }
// Enters steps of these lengths; the first begins at 1000 s. Returns when the last one ends.
double pass_steps(Deadlines& deadlines, const std::vector<double>& seconds) {
  double now_s = 1000;
  for (const double s : seconds) {
    deadlines.enter(Section::step, at(now_s));
    now_s += s;
  }
  deadlines.enter(Section::step, at(now_s));
  return now_s;
}

TEST_CASE("deadlines: a section's limit is learned from the median of a few passes") {
  Deadlines deadlines({.min_s = 30, .factor = 10, .unlearned_s = 600, .passes = 5});
  CHECK(deadlines.limit_s() == 600);
  CHECK(to_text(deadlines.limit()) ==
        "the limit of 600 s for the start; a fixed limit can be given instead");
  (void)pass_steps(deadlines, {3.4, 3.4, 3.4, 3.4});
  CHECK(deadlines.limit_s() == 600);
  deadlines.enter(
      Section::first_step);  // with the real clock, the ended step seems to last since boot
  deadlines.enter(Section::step);
  CHECK(to_text(deadlines.limit()) ==
        "the limit of 34 s for a step, 10 times its median; a fixed limit can be given instead");
  deadlines.enter(Section::saving);
  CHECK(to_text(deadlines.limit()) ==
        "the limit of 600 s for saving; a fixed limit can be given instead");
}

TEST_CASE("deadlines: no limit is below the minimum") {
  Deadlines deadlines({.min_s = 30});
  (void)pass_steps(deadlines, {0.1, 0.1, 0.1, 0.1, 0.1});
  CHECK(to_text(deadlines.limit()) ==
        "the limit of 30 s for a step, the minimum; a fixed limit can be given instead");
}

TEST_CASE("deadlines: a rank that rests does not lengthen the limits of others") {
  Deadlines deadlines({.min_s = 30});
  for (int pass = 0; pass < 6; ++pass) {
    deadlines.enter(Section::rest);
    CHECK(deadlines.limit_s() == 30);
    deadlines.enter(Section::start, Deadlines::Clock::now() + std::chrono::hours(pass + 1));
  }
}

TEST_CASE("deadlines: one slow pass changes nothing, several do, old ones are forgotten") {
  Deadlines deadlines({.min_s = 1, .factor = 10});
  (void)pass_steps(deadlines, {2, 2, 2, 2, 900});
  CHECK(deadlines.limit_s() == 20);
  Deadlines other({.min_s = 1, .factor = 10});
  std::vector<double> slower(32, 1.0);
  slower.insert(slower.end(), 17, 5.0);
  (void)pass_steps(other, slower);
  CHECK(other.limit_s() == 50);
  slower.insert(slower.end(), 40, 0.5);
  Deadlines third({.min_s = 1, .factor = 10});
  (void)pass_steps(third, slower);
  CHECK(third.limit_s() == 5);
}

TEST_CASE("deadlines: a shorter limit counts from the moment it is set") {
  Deadlines deadlines({.min_s = 30, .unlearned_s = 600, .passes = 2});
  const double end_s = pass_steps(deadlines, {1, 1});  // the limit is learned at the end
  CHECK(s_of(deadlines.end_of_wait(at(end_s + 5))) == Approx(end_s + 35));
  CHECK(s_of(deadlines.end_of_wait(at(500))) == Approx(end_s + 30));
  deadlines.enter(Section::saving, at(end_s + 100));
  CHECK(s_of(deadlines.end_of_wait(at(end_s + 100))) == Approx(end_s + 700));
  deadlines.enter(Section::step, at(end_s + 300));
  // This wait began during the saving, and counts from its end.
  CHECK(s_of(deadlines.end_of_wait(at(end_s + 101))) == Approx(end_s + 330));
}

TEST_CASE("deadlines: a fixed limit applies to every section") {
  Deadlines deadlines(7);
  deadlines.enter(Section::step);
  (void)pass_steps(deadlines, {1, 1, 1, 1, 1, 1, 1});
  CHECK(to_text(deadlines.limit()) == "the time limit of 7 s; a larger limit waits longer");
  CHECK(s_of(deadlines.end_of_wait(at(500))) == Approx(507));
  for (const double none : {0.0, 1e10}) {
    CHECK(Deadlines(none).limit_s() == 0);
    CHECK(Deadlines(none).end_of_wait(at(1)) == Time::max());
  }
  CHECK(message_of([] { Deadlines(-1.0); }) ==
        "the time limit of a collective is a number of seconds, or 0 for none, got -1");
  CHECK(has(message_of([] { Deadlines({.factor = 0.5}); }), "a factor of at least 1"));
}

}  // namespace
