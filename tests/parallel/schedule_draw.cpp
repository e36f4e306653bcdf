// The pictures of the schedules, to the letter.
#include <dhp/parallel/schedule_draw.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

TEST_CASE("schedule_draw: 1f1b, a whole backward spans two slots") {
  CHECK(dhp::draw(dhp::all_stages(dhp::OneForwardOneBackward{}, 2, 4)) ==
        "stage 0 | F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- | idle 20 %\n"
        "stage 1 | .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  | idle 20 %\n");
}

TEST_CASE("schedule_draw: zero-bubble") {
  CHECK(dhp::draw(dhp::all_stages(dhp::ZeroBubble{}, 3, 4)) ==
        "stage 0 | F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3 | idle 14 %\n"
        "stage 1 | .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3 | idle 14 %\n"
        "stage 2 | .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 | idle 14 %\n");
}

TEST_CASE("schedule_draw: chunks have letters") {
  CHECK(dhp::draw(dhp::all_stages(dhp::Interleaved{}, 2, 2, 2)) ==
        "stage 0 | F0a F1a F0b F1b .   .   B0b---- .   B1b---- B0a---- B1a---- | idle 20 %\n"
        "stage 1 | .   F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a---- .   .   | idle 20 %\n");
}

TEST_CASE("schedule_draw: numbers of two digits and stages of two digits stay aligned") {
  const auto picture = dhp::draw(dhp::all_stages(dhp::GPipe{}, 11, 11));
  const auto line = picture.find('\n') + 1;
  CHECK(picture.size() == 11 * line);
  CHECK(picture.substr(0, 18) == "stage 0  | F0  F1 ");
  for (std::size_t at = 0; at < picture.size(); at += line) {
    CHECK(picture[at + 9] == '|');
    CHECK(picture[at + line - 1] == '\n');
    CHECK(picture[at + line - 12] == '|');
  }
}

TEST_CASE("schedule_draw: other costs, no micro-batches, no stages") {
  CHECK(dhp::draw(dhp::all_stages(dhp::GPipe{}, 2, 1), {2, 1, 1}) ==
        "stage 0 | F0--- .  .  .  .  B0--- | idle 50 %\n"
        "stage 1 | .  .  F0--- B0--- .  .  | idle 50 %\n");
  CHECK(dhp::draw(dhp::all_stages(dhp::GPipe{}, 2, 0)) ==
        "stage 0 | | idle 0 %\nstage 1 | | idle 0 %\n");
  CHECK(dhp::draw({}).empty());
}

TEST_CASE("schedule_draw: what has no picture is refused") {
  const auto lists = dhp::all_stages(dhp::GPipe{}, 2, 2);
  for (const double cost : {0., 0.5, 101., -1.})
    CHECK_THROWS_AS(dhp::draw(lists, {1, cost, 1}), dhp::Error);
  CHECK_THROWS_AS(dhp::draw(dhp::all_stages(dhp::Interleaved{}, 2, 2, 27)), dhp::Error);
}

}  // namespace
