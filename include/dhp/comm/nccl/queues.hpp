// Which messages may wait for each other. A message that nobody has received holds up what comes after it on its
// communicator, so a rank that sends and receives on the same one can wait for itself, around a ring of ranks. Queues
// are communicators of the same ranks; messages between neighbours of the ring are spread over them so that no rank
// receives from a neighbour where it sends to one.
#pragma once

namespace dhp::comm {

/// Messages to one rank that nobody has received yet, before a send waits.
inline constexpr int message_capacity = 4;

/// How many queues a group needs.
[[nodiscard]] constexpr int queues_of(int ranks) { return ranks % 2 == 0 ? 2 : 3; }

/// By turns; where the ring is odd, the step across its seam meets two of the same turn, and has its own. Messages
/// between ranks that are no neighbours go by the same rule, and may wait for each other.
[[nodiscard]] constexpr int queue_of(int from, int to, int ranks) {
  const bool across = (from == ranks - 1 && to == 0) || (from == 0 && to == ranks - 1);
  return across && ranks > 2 && ranks % 2 != 0 ? 2 : from % 2;
}

}  // namespace dhp::comm
