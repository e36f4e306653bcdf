// MpiContext owns dhp's communicators over the host program's ranks, and holds the lock around MPI calls. Needs MPI.
#pragma once

#include <dhp/core/error.hpp>

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
[[nodiscard]] inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  const bool known = MPI_Error_string(code, text, &length) == MPI_SUCCESS;
  return concat(known ? text : "an error that it does not know", " (code ", code, ")");
}
}  // namespace detail

/// Throws Error if an MPI call failed.
inline void check_mpi(int code, const char* call,
                      std::source_location where = std::source_location::current()) {
  if (code != MPI_SUCCESS) [[unlikely]]
    throw Error(concat(call, ": ", detail::mpi_error_text(code)), where);
}

namespace detail {

/// Paces a polling loop. For 20 us it does not pause, because answers often take a microsecond. Then it yields; after
/// eager_s it sleeps, longer each time.
class Backoff {
 public:
  /// eager_s: seconds for which to poll without sleeping.
  explicit Backoff(double eager_s) : eager_(eager_s) {}
  void operator()() {
    const auto waited = std::chrono::steady_clock::now() - since_;
    if (waited < std::chrono::microseconds(20)) return;
    // Lets another rank run if there are more ranks than cores.
    if (waited < eager_) return std::this_thread::yield();
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(2 * pause_, std::chrono::microseconds(1280));
  }

 private:
  std::chrono::duration<double> eager_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::chrono::microseconds pause_{20};
};

/// Throws Error if dhp cannot use MPI now.
inline void check_mpi_is_usable() {
  int initialized = 0, finalized = 0, level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  check(initialized != 0,
        "MPI is not initialized: call MPI_Init_thread with MPI_THREAD_SERIALIZED or "
        "MPI_THREAD_MULTIPLE before dhp is given a communicator");
  check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
  check(finalized == 0,
        "MPI has been finalized: dhp can be given a communicator before MPI_Finalize only");
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  check(level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE, "MPI was initialized for ",
        level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED",
        ", but dhp overlaps communication by threads of its own: call MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, and check the level that it provides");
}

class MpiContext : NonCopyable {
 public:
  /// Collective over `host`; all ranks must arrive within timeout_s (0: no limit). lock is held during each MPI call.
  MpiContext(MPI_Comm host, double timeout_s, std::shared_ptr<std::mutex> lock)
      : timeout_s_(timeout_s), lock_(std::move(lock)) {
    check_mpi_is_usable();
    check(host != MPI_COMM_NULL,
          "dhp was given MPI_COMM_NULL; a rank that is not in the group of a communicator makes no "
          "session of it");
    MPI_Request request = MPI_REQUEST_NULL;
    const auto result = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
    call([&] {
      int inter = 0;
      check_mpi(MPI_Comm_test_inter(host, &inter), "MPI_Comm_test_inter");
      check(inter == 0,
            "dhp was given an intercommunicator; MPI_Intercomm_merge makes a communicator of all "
            "its ranks");
      check_mpi(MPI_Comm_idup(host, result.get(), &request), "MPI_Comm_idup");
    });
    finish(request, "MPI_Comm_idup", result);
    call([&] {
      adopt(*result);
      check_mpi(MPI_Comm_rank(*result, &rank_), "MPI_Comm_rank");
      check_mpi(MPI_Comm_size(*result, &size_), "MPI_Comm_size");
    });
  }
  // Frees no communicator: that is a collective call, which a failing rank must not make alone.
  ~MpiContext() = default;

  [[nodiscard]] MPI_Comm comm() const { return comms_.front(); }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  /// Runs action() with the lock held. Throws Error after the session was closed.
  template <class Action>
  std::invoke_result_t<Action> call(Action action) {
    const std::lock_guard lock(*lock_);
    check(!closed_, "the MpiSession of this communicator has been closed");
    return action();
  }
  /// Waits for a collective of all ranks; throws Error after the time limit. memory: the buffers of the collective,
  /// which then stay allocated forever, because MPI may still write to them.
  void finish(MPI_Request& request, const char* name, std::shared_ptr<void> memory) {
    const auto start = std::chrono::steady_clock::now();
    Backoff backoff(0.002);
    for (;;) {
      int done = 0;
      call([&] { check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), name); });
      if (done != 0) return;
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      if (timeout_s_ > 0 && waited.count() > timeout_s_) {
        keep(std::move(memory));
        fail("not all ranks of the communicator have come to ", name, " within ", timeout_s_,
             " s; making an MpiSession is collective");
      }
      backoff();
    }
  }

  /// Adds a communicator for the lifetime of this context. Call adopt, keep, close and has_grace only inside call().
  void adopt(MPI_Comm result) {
    check_mpi(MPI_Comm_set_errhandler(result, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    comms_.push_back(result);
  }
  /// Keeps memory forever, because MPI may write to it until MPI_Finalize. close() then frees no communicator either.
  void keep(std::shared_ptr<void> memory) {
    static_cast<void>(new std::shared_ptr<void>(std::move(memory)));
    torn_ = true;
  }
  /// Frees the communicators in order of their creation, which all ranks share, unless keep() was called. Collective.
  void close() {
    if (!torn_)
      for (auto& comm : comms_) check_mpi(MPI_Comm_free(&comm), "MPI_Comm_free");
    closed_ = true;
  }
  /// Returns whether transfers that are pending at the world's end may still finish: within 2 s of the first call.
  [[nodiscard]] bool has_grace() {
    const auto now = std::chrono::steady_clock::now();
    if (!grace_end_) grace_end_ = now + std::chrono::seconds(2);
    return now < *grace_end_;
  }

 private:
  double timeout_s_;
  std::shared_ptr<std::mutex> lock_;
  std::vector<MPI_Comm> comms_{};
  bool torn_ = false, closed_ = false;
  std::optional<std::chrono::steady_clock::time_point> grace_end_{};
  int rank_ = 0, size_ = 1;
};

}  // namespace detail

}  // namespace dhp
