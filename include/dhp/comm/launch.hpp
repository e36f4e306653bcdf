// run_ranks starts a world of ranks as threads of this process and waits for them. If a rank throws, or waits for a
// finished rank, all others end, and the caller gets the error. dhp/watch.hpp has a run_ranks with a time limit.
// RankLauncher<Dev> starts the ranks of a device; this header has the one for the Cpu.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/threads/thread_comm.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace dhp {

namespace detail {

/// Runs body(rank) on a thread per rank and waits for all threads. Throws the first error that is a rank's own, not the
/// Aborted of the others.
void run_rank_threads(Latch& latch, int ranks, auto body, CallSite where) {
  std::mutex mutex;
  std::string failure;
  CallSite place{};
  const auto failed = [&](int rank, const std::string& message, const CallSite& at) {
    const auto text = said_by(rank, message);
    if (const std::lock_guard lock(mutex); failure.empty()) failure = text, place = at;
    latch.abort(text);
  };
  const auto run = [&](int rank) {
    try {
      body(rank);
      latch.finish(rank);
    } catch (const Aborted&) {  // the latch knows the reason
      latch.finish(rank);
    } catch (const std::exception& error) {
      const auto* const own = dynamic_cast<const Error*>(&error);
      failed(rank, sentence_of(error), own != nullptr ? own->where() : where);
    } catch (...) {
      failed(rank, "an exception of unknown type", where);
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(as_size(ranks));
  try {
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  } catch (const std::system_error& error) {
    failed(static_cast<int>(threads.size()), concat("its thread cannot be started: ", error.what()),
           where);
  }
  for (auto& thread : threads) thread.join();
  if (!failure.empty()) throw Error(failure, place);
  try {
    latch.check_alive();
  } catch (const Aborted& error) {
    throw Error(error.sentence(), where);
  }
}

/// Runs body(Comm<Dev>) on each rank; the ranks of the Cpu are threads. Compiled once, in dhp::cpu_compiled.
template <class Dev>
class RankLauncher {
 public:
  using Body = std::function<void(Comm<Dev>)>;
  static void run(int ranks, const Body& body, CallSite where);
};
}  // namespace detail

template <class Dev>
void detail::RankLauncher<Dev>::run(int ranks, const Body& body, CallSite where) {
  if constexpr (std::is_same_v<Dev, Cpu>) {
    const auto latch = std::make_shared<Latch>();
    const auto comms = detail::ThreadComm::all_of(latch, ranks);
    detail::run_rank_threads(
        *latch, ranks, [&](int rank) { body(Comm<Dev>::of(comms[detail::as_size(rank)])); }, where);
  } else {
    fail({"this program was built without the communication that ", where}, ranks,
         " ranks of its device need (on GPUs: NCCL)");
  }
}

/// Runs body(world) on each of `ranks` threads; all threads share the body. Throws Error("rank 3: ...") for the first
/// rank that failed. A world of one rank runs in the calling thread and passes its exceptions on unchanged.
template <class Dev = Cpu, class Body>
void run_ranks(int ranks, Body body, CallSite where = CallSite::current()) {
  check(ranks >= 1, "a world has at least 1 rank, got ", ranks);
  if (ranks == 1) body(Comm<Dev>());
  else detail::RankLauncher<Dev>::run(ranks, std::ref(body), where);
}

}  // namespace dhp
