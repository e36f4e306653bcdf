// run_ranks: starts a world of ranks as threads of this process and waits for them. A rank that throws
// ends all the others; what it said is what the caller hears.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/threads.hpp>

#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace dhp {

struct RankOptions {
  double timeout_s = 300;  ///< time limit of every collective; 0: none
};

/// body(world) on each of `ranks` threads. Throws Error("rank 3: ...") for the first rank that failed.
/// A world of one is a group of one, in the calling thread.
template <class Body>
void run_ranks(int ranks, Body body, RankOptions options = {}) {
  check(ranks >= 1, "a world has at least 1 rank, got ", ranks);
  if (ranks == 1) {
    body(Comm<Cpu>());
    return;
  }
  auto comms = ThreadComm::world_of(ranks, options.timeout_s);
  const auto world = comms.front().world();
  std::mutex mutex;
  std::string first_error;
  const auto failed = [&](int rank, const std::string& message) {
    const auto text = concat("rank ", rank, ": ", message);
    {
      const std::lock_guard lock(mutex);
      if (first_error.empty()) first_error = text;
    }
    world->abort(text);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(Comm<Cpu>::of(comms[static_cast<std::size_t>(rank)]));
        world->finish(rank);
      } catch (const Aborted& error) {
        // The world ended for another rank's reason, or for a wait in vain: that is the message.
        const std::lock_guard lock(mutex);
        if (first_error.empty()) first_error = error.sentence();
      } catch (const Error& error) {
        failed(rank, error.sentence());
      } catch (const std::exception& error) {
        failed(rank, error.what());
      } catch (...) {
        failed(rank, "an exception of unknown type");
      }
    });
  for (auto& thread : threads) thread.join();
  if (!first_error.empty()) throw Error(first_error);
}

}  // namespace dhp
