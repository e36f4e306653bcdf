// MpiDuplicate: a communicator of dhp's own over the ranks of one of the host program's, so that the messages of
// the two never meet; and who may call MPI when. Needs MPI.
#pragma once

#include <dhp/comm/mpi_error.hpp>
#include <dhp/comm/poll_pause.hpp>
#include <dhp/core/error.hpp>

#include <mpi.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

namespace dhp {

/// Throws Error where MPI cannot be used by dhp now.
inline void check_mpi_is_usable() {
  int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
  check(initialised != 0,
        "MPI is not initialised: call MPI_Init_thread with MPI_THREAD_SERIALIZED or "
        "MPI_THREAD_MULTIPLE before dhp is given a communicator");
  check_mpi(MPI_Finalized(&finalised), "MPI_Finalized");
  check(finalised == 0,
        "MPI has been finalised: dhp can be given a communicator before MPI_Finalize only");
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  check(level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE, "MPI was initialised for ",
        level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED",
        ", but dhp overlaps communication by threads of its own: call MPI_Init_thread with "
        "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, and look at what it provides");
}

class MpiDuplicate {
 public:
  /// Collective over `host`, of which every rank comes within timeout_s; 0: whenever. lock: held around each call
  /// of MPI.
  MpiDuplicate(MPI_Comm host, double timeout_s, std::shared_ptr<std::mutex> lock)
      : timeout_s_(timeout_s), lock_(std::move(lock)) {
    check_mpi_is_usable();
    check(host != MPI_COMM_NULL,
          "dhp was given MPI_COMM_NULL; a rank that is not in the group of a "
          "communicator makes no guest of it");
    MPI_Request request = MPI_REQUEST_NULL;
    const auto made = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
    call([&] {
      int inter = 0;
      check_mpi(MPI_Comm_test_inter(host, &inter), "MPI_Comm_test_inter");
      check(inter == 0,
            "dhp was given an intercommunicator; MPI_Intercomm_merge makes a "
            "communicator of all its ranks");
      check_mpi(MPI_Comm_idup(host, made.get(), &request), "MPI_Comm_idup");
    });
    finish(request, "MPI_Comm_idup", made);
    comm_ = *made;
    call([&] {
      check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
      check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    });
  }
  MpiDuplicate(const MpiDuplicate&) = delete;
  MpiDuplicate& operator=(const MpiDuplicate&) = delete;
  // Freeing is collective: a rank that fails must not do it by itself.
  ~MpiDuplicate() = default;

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }

  template <class Action>
  std::invoke_result_t<Action> call(Action action) {
    const std::lock_guard lock(*lock_);
    return action();
  }
  /// Waits for a collective of this communicator; throws Error where not all ranks have come in time. memory: what
  /// MPI reads and writes meanwhile.
  void finish(MPI_Request& request, const char* name, std::shared_ptr<void> memory) {
    const auto start = Clock::now();
    PollPause pause(0.002);
    for (;;) {
      int done = 0;
      call([&] { check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), name); });
      if (done != 0) return;
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (timeout_s_ > 0 && waited.count() > timeout_s_) {
        static_cast<void>(
            new std::shared_ptr<void>(std::move(memory)));  // MPI may still write to it
        fail("not all ranks of the communicator have come to ", name, " within ", timeout_s_,
             " s; making an MpiGuest is collective");
      }
      pause(false);
    }
  }
  /// Collective. Nothing may be under way.
  void free() {
    call([&] { check_mpi(MPI_Comm_free(&comm_), "MPI_Comm_free"); });
  }

 private:
  using Clock = std::chrono::steady_clock;
  double timeout_s_;
  std::shared_ptr<std::mutex> lock_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace dhp
