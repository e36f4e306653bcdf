// Who talks to whom in which round, so that every two ranks meet once and nobody meets two at a time: the circle
// method of tournaments.
#pragma once

namespace examples::doctor {

/// With an odd number of ranks one of them pauses in each round.
[[nodiscard]] constexpr int rounds_of(int ranks) { return ranks < 2 ? 0 : ranks - 1 + ranks % 2; }

/// The partner of a rank in a round; -1: it pauses.
[[nodiscard]] constexpr int partner_of(int rank, int round, int ranks) {
  const int rounds = rounds_of(ranks);  // odd; the seats on the circle
  const int fixed = rounds;             // who sits in the middle, if anybody
  int partner = 0;
  if (rank == fixed) {
    for (partner = 0; 2 * partner % rounds != round % rounds;) ++partner;
    return partner;
  }
  partner = ((round - rank) % rounds + rounds) % rounds;
  if (partner == rank) partner = fixed;
  return partner < ranks ? partner : -1;
}

}  // namespace examples::doctor
