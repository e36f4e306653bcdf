// The clipping factor on both sides of its limit.
#include <dhp/optim/clip.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

TEST_CASE("clip: only norms above the limit are scaled, down to it; a limit of 0 is none") {
  CHECK(dhp::clip_factor(4, 1) == 0.25);
  CHECK(dhp::clip_factor(1, 1) == 1);
  CHECK(dhp::clip_factor(0.5, 1) == 1);
  CHECK(dhp::clip_factor(0, 1) == 1);
  CHECK(dhp::clip_factor(1e9, 0) == 1);
  const double odd = 0.3 / 0.7;
  CHECK(dhp::clip_factor(0.7, 0.3) == odd);
}
