#include <dhp/comm/nccl/queues.hpp>

#include <doctest/doctest.h>

namespace {

using dhp::comm::queue_of;
using dhp::comm::queues_of;

TEST_CASE("message lanes: around a ring no rank receives where it sends, either way") {
  for (int ranks = 2; ranks <= 17; ++ranks)
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(ranks);
      CAPTURE(rank);
      const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
      CHECK(queue_of(rank, next, ranks) != queue_of(last, rank, ranks));
      CHECK(queue_of(rank, last, ranks) != queue_of(next, rank, ranks));
    }
}

TEST_CASE("message lanes: any two ranks have one, which exists") {
  for (int ranks = 2; ranks <= 9; ++ranks)
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to) {
        CHECK(queue_of(from, to, ranks) >= 0);
        CHECK(queue_of(from, to, ranks) < queues_of(ranks));
      }
}

}  // namespace
