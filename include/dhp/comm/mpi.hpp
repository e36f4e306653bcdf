// MpiGuest: dhp inside a program that has MPI. The program lends a communicator; dhp works on a duplicate of it, and
// is gone when the guest is: it initialises nothing, finalises nothing, ends no process, and leaves signals
// alone. Needs MPI and OpenSSL.
#pragma once

#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/mpi_meeting.hpp>
#include <dhp/comm/mpi_transport.hpp>
#include <dhp/comm/peers.hpp>

#include <mpi.h>

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace dhp {

struct MpiOptions {
  double timeout_s =
      300;  ///< for ranks to come, of every wait for another, and of a rank's silence; 0: none
  /// Of rank 0's machine, where the others reach it; empty: what leads from there to another machine of the
  /// communicator.
  std::string address{};
  /// Held by dhp around each call of MPI. A program with MPI_THREAD_SERIALIZED and several threads that call MPI holds
  /// the same one around its own; empty: one of the guest's own.
  std::shared_ptr<std::mutex> lock{};
  /// The world has ended, and this rank does not come back from its own work: see ProcessWorld::Options.
  std::function<void(const std::string& message)> stuck{};
};

class MpiGuest {
 public:
  /// Collective over the ranks of `host`, as MPI_Comm_dup is. `host` may be used, and freed, as before.
  explicit MpiGuest(MPI_Comm host, MpiOptions options = {}) {
    if (!options.lock) options.lock = std::make_shared<std::mutex>();
    comm_ = std::make_shared<MpiDuplicate>(host, options.timeout_s, options.lock);
    if (comm_->size() == 1) return;
    constexpr double for_ever_s = 1e8;
    const auto store = meet_over_mpi(*comm_, options.address,
                                     options.timeout_s > 0 ? options.timeout_s : for_ever_s);
    ProcessWorld::Options watch;
    watch.timeout_s = options.timeout_s;
    watch.name = process_name();
    watch.stuck = options.stuck;
    process_ =
        std::make_shared<ProcessWorld>(store, comm_->rank(), comm_->size(), std::move(watch));
    transport_ = std::make_shared<MpiTransport>(comm_);
    world_ = Comm<Cpu>::of(PeerComm(process_, transport_));
  }
  MpiGuest(const MpiGuest&) = delete;
  MpiGuest& operator=(const MpiGuest&) = delete;
  /// close(); where an exception is under way the other ranks are told that this one has failed.
  ~MpiGuest() {
    try {
      if (std::uncaught_exceptions() > exceptions_)
        fail_all(
            "an exception has left the scope of its MpiGuest; run() tells the others what it says");
      close();
    } catch (const std::exception&) {  // the world has ended, and its communicators have said why
    }
  }

  /// All ranks. Used while the guest is there.
  [[nodiscard]] Comm<Cpu> world() const { return world_; }

  /// body(world()). What it throws goes on to the caller when all ranks have been told, Aborted where another rank is
  /// to blame; then the guest is closed.
  template <class Body>
  void run(Body body) {
    try {
      body(world());
    } catch (const Error& error) {
      leave(error.sentence());
      throw;
    } catch (const std::exception& error) {
      leave(error.what());
      throw;
    }
  }

  /// Collective: the ranks meet, and the duplicate is freed. Throws Aborted when the world ends before. Where it has
  /// ended, what other ranks still send is thrown away for a moment, so that none is left with a message that MPI
  /// does not finish; if one is, the duplicate stays until MPI_Finalize.
  void close() {
    if (std::exchange(closed_, true)) return;
    int finalised = 0;
    check_mpi(MPI_Finalized(&finalised), "MPI_Finalized");
    if (finalised != 0) return;
    if (!process_) return comm_->free();
    std::exception_ptr wrong;
    try {
      world_.barrier();
    } catch (const Error& error) {
      fail_all(error.sentence());
      wrong = std::current_exception();
    }
    const bool clean = transport_->close();
    if (!wrong) process_->finish();
    transport_->end();
    if (clean) comm_->free();
    if (wrong) std::rethrow_exception(wrong);
  }

 private:
  void fail_all(const std::string& why) {
    if (process_ && !process_->ended()) process_->abort(why);
  }
  void leave(const std::string& why) noexcept {
    try {
      fail_all(why);
      close();
    } catch (const std::exception&) {  // the caller's exception says more
    }
  }

  std::shared_ptr<MpiDuplicate> comm_;
  std::shared_ptr<ProcessWorld> process_{};
  std::shared_ptr<MpiTransport> transport_{};
  Comm<Cpu> world_{};
  bool closed_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace dhp
