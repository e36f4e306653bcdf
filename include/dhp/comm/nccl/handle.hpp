// NcclHandle is one NCCL communicator with its pending work. The communicator is nonblocking: no thread stays inside
// NCCL, and another thread can abort it if a peer is lost. It stays nonblocking for its whole life, because any call
// may connect. The price: NCCL starts a thread per call, and the host polls until the work is on its stream.
#pragma once

#include <dhp/comm/nccl/error.hpp>
#include <dhp/comm/watch/watchdog.hpp>
#include <dhp/device/cuda_event.hpp>

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace dhp::detail {

/// An operation that is no CommCall, with its name in messages: "the creation of a group".
struct NcclTask {
  const char* name;
  CallSite where;
  friend std::string to_text(const NcclTask& task) { return concat(task.name, " at ", task.where); }
};

/// In all functions `what` is a CommCall or an NcclTask, and names the work in messages. Failed work ends the world and
/// throws Error with the location of the call. After the world has ended, Aborted is thrown instead.
class NcclHandle final : public Watchdog::Channel {
 public:
  /// Makes a handle without a communicator. watchdog must outlive all uses except end(). The handle owns `stream`, the
  /// stream of its work, until the communicator has ended; after an abort, this may be later than its user.
  NcclHandle(Watchdog& watchdog, GroupRecorder recorder, CudaStream stream)
      : watchdog_(&watchdog), recorder_(std::move(recorder)), stream_(std::move(stream)) {}

  [[nodiscard]] GroupRecorder& recorder() { return recorder_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

  /// Creates the communicator with make(ncclComm_t*); returns when it exists.
  void open(const auto& what, auto make) {
    finish(what, locked([&] { return make(&comm_); }));
  }
  /// Runs call(ncclComm_t), which queues work on a stream; returns when the work is queued.
  void run(const auto& what, auto call) {
    finish(what, locked([&] {
             if (comm_ == nullptr) watchdog_->check_alive();
             check(comm_ != nullptr, "NCCL: the communicator of ", what, " has been closed");
             return call(comm_);
           }));
  }
  /// Borrows a host program's communicator, which must be ready for use, and never ends it.
  void borrow(ncclComm_t hosts) { comm_ = hosts; }
  /// Splits a part of this communicator into `part`, after pending work is done; a negative color makes no part.
  void split_off(const auto& what, int color, int key, ncclConfig_t config, NcclHandle& part) {
    wait_until(what, "its collectives before it", [&] { return !busy(); });
    auto result = std::make_unique<ncclComm_t>(nullptr);
    try {
      run(what, [&](ncclComm_t comm) {
        const int nccl_color = color < 0 ? NCCL_SPLIT_NOCOLOR : color;
        return ncclCommSplit(comm, nccl_color, key, result.get(), &config);
      });
    } catch (...) {
      (void)result.release();  // leaked, because NCCL may still write to it
      throw;
    }
    part.comm_ = *result;
  }
  /// Blocks the host until ready(), which depends on other ranks.
  void wait_until(const auto& what, const char* whom, auto ready) {
    watchdog_->wait_until(ready, [&] {
      return concat("rank ", recorder_.rank(), " waits in ", what, " for ", whom);
    });
  }

  /// Watches a call. Its work lies between the events `begin` and `end` of the stream.
  void watch(FlightRecorder::Open call, CudaEvent begin, CudaEvent end) {
    const std::lock_guard lock(mutex_);
    pending_.push_back({std::move(call), std::move(begin), std::move(end), {}});
    pending_.back().call.on_device(false);
    look_at_pending();
  }
  [[nodiscard]] bool busy() {
    const std::lock_guard lock(mutex_);
    look_at_pending();
    return !pending_.empty();
  }

  [[nodiscard]] std::string error() override {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {};
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state != ncclSuccess &&
        state != ncclInProgress)
      return concat("rank ", recorder_.rank(), ", ",
                    pending_.empty() ? "in no collective" : to_text(pending_.front().call.record()),
                    ": NCCL says: ", nccl_error_text(state));
    look_at_pending();
    // If a failure detector knows all ranks of the group, it can name the cause, so it gets a second more.
    constexpr auto more = std::chrono::seconds(1);
    if (pending_.empty() || !pending_.front().since) return {};
    const auto& [call, begin, end, since] = pending_.front();
    if (!watchdog_->is_late(*since + more)) return {};
    return concat("rank ", recorder_.rank(), " waits in ", call.record(),
                  " for another rank of its group, beyond ", watchdog_->deadlines()->limit());
  }
  void end() noexcept override {
    if (auto* const comm = take()) static_cast<void>(ncclCommAbort(comm));
  }
  /// Waits for pending work, then closes the communicator.
  void close() {
    run(NcclTask{"the end of a group", CallSite::current()}, ncclCommFinalize);
    if (auto* const comm = take()) check_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
  }
  /// Returns a lock that keeps the communicator open; throws Aborted if the world has ended.
  [[nodiscard]] std::unique_lock<std::mutex> hold() {
    std::unique_lock lock(mutex_);
    if (comm_ == nullptr) {
      lock.unlock();
      watchdog_->check_alive();
      fail("NCCL: a recorded step works with a communicator that has been closed");
    }
    return lock;
  }
  [[nodiscard]] bool is_open() {
    const std::lock_guard lock(mutex_);
    return comm_ != nullptr;
  }

 private:
  struct Pending {
    FlightRecorder::Open call;
    CudaEvent begin, end;
    std::optional<Watchdog::Clock::time_point> since;  // when the device reached the call
  };

  ncclResult_t locked(auto action) {
    const std::lock_guard lock(mutex_);
    return action();
  }
  void finish(const auto& what, ncclResult_t code) {
    // A single ncclSend or ncclRecv returns ncclSuccess before the message is on its stream, so wait anyway.
    if (code == ncclSuccess) code = ncclInProgress;
    wait_until(what, "the ranks of its group", [&] {
      if (code != ncclInProgress) return true;
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) watchdog_->check_alive();
      const auto asked = ncclCommGetAsyncError(comm_, &code);
      if (asked != ncclSuccess) code = asked;
      return code != ncclInProgress;
    });
    if (code == ncclSuccess) return;
    const auto text =
        concat("rank ", recorder_.rank(), ", ", what, ": NCCL says: ", nccl_error_text(code));
    watchdog_->abort(text);
    // These codes say that another process, or the network to it, is lost; then the world's reason is thrown instead.
    if (code == ncclRemoteError || code == ncclSystemError) watchdog_->check_alive();
    throw Error(text, what.where);
  }
  [[nodiscard]] ncclComm_t take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(comm_, nullptr);
  }
  // Forgets finished work. A call's time limit starts when the device begins the call.
  void look_at_pending() {
    while (!pending_.empty() && pending_.front().end.passed()) pending_.pop_front();
    for (auto& next : pending_) {
      if (next.since) continue;
      if (!next.begin.passed()) return;
      next.since = Watchdog::Clock::now();
      next.call.on_device(true);
    }
  }

  Watchdog* watchdog_;
  GroupRecorder recorder_;  // owns the flight recorder to which pending_ refers
  CudaStream stream_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::deque<Pending> pending_;
};

}  // namespace dhp::detail
