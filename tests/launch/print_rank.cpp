// Prints in one line the rank that the environment gives this process, or an error if the variables contradict.
#include <dhp/comm/rendezvous/process_rank.hpp>

#include <cstdio>

int main() {
  try {
    const auto me = dhp::ProcessRank::from_environment();
    if (!me) {
      std::puts("no launcher");
      return 0;
    }
    std::puts(dhp::concat("rank ", me->rank, " of ", me->size, ", local ", me->local_rank, " of ",
                          me->local_size, ", launcher ", me->launcher, ", master ", me->master, ":",
                          me->port, ", job ", me->job)
                  .c_str());
    return 0;
  } catch (const dhp::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
    return 1;
  }
}
