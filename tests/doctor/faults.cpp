#include <examples/doctor/faults.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;

TEST_CASE("faults: NAME=RANK") {
  Faults faults;
  CHECK(faults.last_rank() == -1);
  faults.add("slow-gemm=2");
  faults.add("sick-gpu=0");
  CHECK(faults.has("slow-gemm", 2));
  CHECK_FALSE(faults.has("slow-gemm", 0));
  CHECK_FALSE(faults.has("slow-copy", 2));
  CHECK(faults.rank_of("sick-gpu") == 0);
  CHECK(faults.last_rank() == 2);
}

TEST_CASE("faults: what makes no sense is refused") {
  Faults faults;
  CHECK_THROWS_WITH_AS(faults.add("slow=1"), doctest::Contains("there is no fault \"slow\""),
                       dhp::Error);
  for (const char* text :
       {"slow-gemm", "slow-gemm=", "slow-gemm=x", "slow-gemm=-1", "slow-gemm=1x"})
    CHECK_THROWS_WITH_AS(faults.add(text), doctest::Contains("does not name a rank"), dhp::Error);
}
