// NcclHandle: one communicator of NCCL, and what it has under way. It is never blocking: a call comes back at
// once, and the caller asks until it is done. So nobody is ever inside NCCL for long, and another thread
// can end the communicator when a peer is gone, which is only allowed while nobody is inside. Any call may be the
// first that needs a connection, so a communicator cannot be blocking later either. The price is a thread that NCCL
// starts for each call, and a host that asks until that has put the work on its stream.
#pragma once

#include <dhp/comm/nccl_error.hpp>
#include <dhp/comm/watched_world.hpp>
#include <dhp/device/cuda_event.hpp>

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace dhp {

/// A call, for messages.
struct NcclOperation {
  const char* name;
  CallSite where;
  std::int64_t count = -1;  ///< elements; negative: there is no such thing
  DType dtype = DType::f32;
  const char* detail = "";
  int peer = -1;  ///< of a message: the rank of the group that it comes from or goes to
  int more = 0;   ///< calls after this one that a recorded step does as one with it

  /// "all_reduce of 5 f32 (sum)"
  [[nodiscard]] std::string what() const {
    auto text = std::string(name);
    if (count >= 0) append_text(text, concat(" of ", count, " ", dtype));
    if (detail[0] != 0) append_text(text, concat(" (", detail, ")"));
    append_text(text, more_text());
    return text;
  }
  [[nodiscard]] std::string more_text() const {
    return more > 0 ? concat(" and ", more, " more of a recorded step") : "";
  }
  friend std::string to_text(const NcclOperation& of) {
    return concat(of.what(), " at ", to_text(of.where));
  }
};

class NcclHandle final : public WatchedWorld::Channel {
 public:
  /// Of no communicator yet. world_rank: the caller's, for messages. stream: what work is put on; it stays until
  /// the communicator has ended, which after an abort may be later than its user's own end.
  NcclHandle(WatchedWorld& world, int world_rank, CudaStream stream)
      : patience_(world.patience()), world_rank_(world_rank), stream_(std::move(stream)) {}

  /// open(ncclComm_t*) begins to make the communicator; returns when that is done. Throws like run().
  template <class Open>
  void open(WatchedWorld& world, const NcclOperation& operation, Open open) {
    wait_until_done(world, operation, locked([&] { return open(&comm_); }));
  }
  /// call(ncclComm_t), which puts work on a stream; returns when it is there. Whatever goes wrong ends the
  /// world, and throws Error with the place of the call; after the end of the world it throws Aborted.
  template <class Call>
  void run(WatchedWorld& world, const NcclOperation& operation, Call call) {
    wait_until_done(world, operation, locked([&] {
                      if (comm_ == nullptr) world.check_alive();
                      check(comm_ != nullptr, "NCCL: the communicator of ", operation,
                            " has been closed");
                      return call(comm_);
                    }));
  }
  /// Takes over a communicator that is ready, and does not block.
  void adopt(ncclComm_t made) {
    const std::lock_guard lock(mutex_);
    comm_ = made;
  }
  /// A part of this communicator becomes that of `part`; none for a negative colour. What is under way is waited
  /// for: NCCL promises nothing otherwise.
  void split_off(WatchedWorld& world, const NcclOperation& operation, int color, int key,
                 ncclConfig_t config, NcclHandle& part) {
    world.wait_until([&] { return !busy(); },
                     [&] {
                       return concat("rank ", world_rank_, " waits in ", operation,
                                     " for its collectives before it");
                     });
    // NCCL writes there when the call is done, even if nobody waits any more.
    splitting_ = std::make_shared<ncclComm_t>(nullptr);
    run(world, operation, [&](ncclComm_t comm) {
      return ncclCommSplit(comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, splitting_.get(),
                           &config);
    });
    part.comm_ = *std::exchange(splitting_, nullptr);
  }

  /// The work between these two points of a stream is to be watched: the time limit counts from where it
  /// begins, for what comes before it may take as long as it likes. noted: in the ledger, until it is done.
  void watch(const NcclOperation& operation, CudaEvent begin, CudaEvent end,
             std::optional<Ledger::Call> noted = {}) {
    const std::lock_guard lock(mutex_);
    pending_.push_back({operation, std::move(begin), std::move(end), {}, std::move(noted)});
  }
  [[nodiscard]] bool busy() {
    const std::lock_guard lock(mutex_);
    forget_what_is_done();
    return !pending_.empty();
  }

  [[nodiscard]] std::string trouble() override {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {};
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(comm_, &state) == ncclSuccess && state != ncclSuccess &&
        state != ncclInProgress)
      return concat("rank ", world_rank_, ", ", where_it_is(), ": NCCL says: ", nccl_says(state));
    forget_what_is_done();
    if (pending_.empty()) return {};
    auto& next = pending_.front();
    if (!next.since && next.begin.passed()) next.since = WatchedWorld::Clock::now();
    if (!next.since || !patience_.is_late(*next.since)) return {};
    return concat("rank ", world_rank_, " waits in ", next.operation,
                  " for another rank of its group, beyond ", patience_.deadlines->limit());
  }
  void end() noexcept override {
    if (auto* const comm = take()) static_cast<void>(ncclCommAbort(comm));
  }
  /// Waits for what is under way, then closes the communicator. Throws as run() does.
  void close(WatchedWorld& world, const NcclOperation& operation) {
    run(world, operation, [](ncclComm_t comm) { return ncclCommFinalize(comm); });
    if (auto* const comm = take()) check_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
  }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// The communicator is open, and stays so while the lock is held; throws Aborted where the world has ended.
  [[nodiscard]] std::unique_lock<std::mutex> hold(WatchedWorld& world) {
    std::unique_lock lock(mutex_);
    if (comm_ == nullptr) {
      lock.unlock();
      world.check_alive();
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
    NcclOperation operation;
    CudaEvent begin, end;
    std::optional<WatchedWorld::Clock::time_point> since;
    std::optional<Ledger::Call> noted;
  };

  template <class Call>
  ncclResult_t locked(Call call) {
    const std::lock_guard lock(mutex_);
    return call();
  }
  void wait_until_done(WatchedWorld& world, const NcclOperation& operation, ncclResult_t code) {
    // A single ncclSend or ncclRecv says ncclSuccess before the message is on its stream: asked all the same.
    if (code == ncclSuccess) code = ncclInProgress;
    const auto done = [&] {
      if (code != ncclInProgress) return true;
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) world.check_alive();
      const auto asked = ncclCommGetAsyncError(comm_, &code);
      if (asked != ncclSuccess) code = asked;
      return code != ncclInProgress;
    };
    world.wait_until(done, [&] {
      return concat("rank ", world_rank_, " waits in ", operation, " for the ranks of its group");
    });
    if (code == ncclSuccess) return;
    const auto text =
        concat("rank ", world_rank_, ", ", operation, ": NCCL says: ", nccl_says(code));
    world.abort(text);
    throw Error(text, operation.where);
  }
  [[nodiscard]] ncclComm_t take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(comm_, nullptr);
  }
  void forget_what_is_done() {
    while (!pending_.empty() && pending_.front().end.passed()) pending_.pop_front();
  }
  [[nodiscard]] std::string where_it_is() const {
    return pending_.empty() ? std::string("in no collective") : to_text(pending_.front().operation);
  }

  WatchedWorld::Patience patience_;
  int world_rank_;
  CudaStream stream_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  std::shared_ptr<ncclComm_t> splitting_;
  std::deque<Pending> pending_;
};

}  // namespace dhp
