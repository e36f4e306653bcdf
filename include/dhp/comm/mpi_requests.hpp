// MpiRequests: what MPI has been given and is not done with, and the messages that it belongs to; MpiHeaders: the
// receives that wait for the headers of any rank. Neither waits, and neither locks. Needs MPI.
#pragma once

#include <dhp/comm/mpi_error.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct MpiHeader {
  std::uint64_t tag, bytes;
  std::int32_t mpi_tag;  // 0: a farewell
  std::int32_t intact;   // of a farewell: whether the sender still has all that it has announced
};

/// A message, in one direction; this object stays until MPI is done with it.
struct MpiMessage {
  enum class State { waiting, moving, done };

  std::byte* data;  // one that is sent is not written to
  std::size_t bytes;
  int peer;
  std::uint64_t tag;
  bool sends;
  State state = State::waiting;
  int open = 0;         // requests
  std::string wrong{};  // what MPI says
  MpiHeader header{};
  std::unique_ptr<std::byte[]> own{};  // memory of a message that nobody wants any more
};

class MpiRequests {
 public:
  using Shared = std::shared_ptr<MpiMessage>;

  [[nodiscard]] bool empty() const { return requests_.empty(); }
  /// For a call of MPI that follows at once.
  [[nodiscard]] MPI_Request* add(const Shared& message) {
    messages_.push_back(message);
    requests_.push_back(MPI_REQUEST_NULL);
    ++message->open;
    return &requests_.back();
  }
  /// Makes MPI move messages. finished: those of which all requests are done now.
  void finish_some(std::vector<Shared>& finished) {
    finished.clear();
    if (empty()) return;
    done_.resize(requests_.size());
    statuses_.resize(requests_.size());
    int count = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                  done_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testsome");
    if (count == 0 || count == MPI_UNDEFINED) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      auto& message = messages_[static_cast<std::size_t>(done_[i])];
      if (code == MPI_ERR_IN_STATUS && statuses_[i].MPI_ERROR != MPI_SUCCESS)
        message->wrong = mpi_says(statuses_[i].MPI_ERROR);
      if (--message->open == 0) finished.push_back(message);
      message.reset();
    }
    forget_finished();
  }
  /// Of a receive that nobody waits for. One that MPI has begun goes on.
  void cancel(const Shared& message) {
    for (std::size_t at = 0; at < messages_.size(); ++at)
      if (messages_[at] == message) MPI_Cancel(&requests_[at]);
  }
  /// MPI may use the memory of these messages as long as it is there.
  void keep_for_ever() {
    if (!empty()) static_cast<void>(new auto(std::move(messages_)));
    messages_.clear();
    requests_.clear();
  }

 private:
  void forget_finished() {
    std::size_t kept = 0;
    for (std::size_t at = 0; at < messages_.size(); ++at) {
      if (!messages_[at]) continue;
      if (kept != at) {
        messages_[kept] = std::move(messages_[at]);
        requests_[kept] = requests_[at];
      }
      ++kept;
    }
    messages_.resize(kept);
    requests_.resize(kept);
  }

  std::vector<MPI_Request> requests_{};
  std::vector<Shared> messages_{};  // of requests_
  std::vector<int> done_{};
  std::vector<MPI_Status> statuses_{};
};

class MpiHeaders {
 public:
  static constexpr int mpi_tag = 0;

  explicit MpiHeaders(MPI_Comm comm) {
    for (auto& slot : ring_) {
      check_mpi(MPI_Recv_init(&slot.header, sizeof slot.header, MPI_BYTE, MPI_ANY_SOURCE, mpi_tag,
                              comm, &slot.request),
                "MPI_Recv_init");
      check_mpi(MPI_Start(&slot.request), "MPI_Start");
    }
  }
  MpiHeaders(const MpiHeaders&) = delete;
  MpiHeaders& operator=(const MpiHeaders&) = delete;

  /// Those of one rank in the order in which it sent them. False: there is none.
  [[nodiscard]] bool next(MpiHeader& header, int& from) {
    // Only the oldest receive: messages meet receives in the order of both, but need not be done in it.
    auto& slot = ring_[oldest_];
    int done = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&slot.request, &done, &status), "MPI_Test");
    if (done == 0) return false;
    header = slot.header;
    from = status.MPI_SOURCE;
    check_mpi(MPI_Start(&slot.request), "MPI_Start");
    oldest_ = (oldest_ + 1) % ring_.size();
    return true;
  }
  /// Nothing is received from now on.
  void stop() noexcept {
    for (auto& slot : ring_) {
      MPI_Cancel(&slot.request);
      MPI_Wait(&slot.request, MPI_STATUS_IGNORE);  // of a cancelled receive: it waits for nobody
      MPI_Request_free(&slot.request);
    }
  }

 private:
  static constexpr std::size_t at_once = 32;
  struct Slot {
    MpiHeader header{};
    MPI_Request request = MPI_REQUEST_NULL;
  };
  std::array<Slot, at_once> ring_{};
  std::size_t oldest_ = 0;
};

}  // namespace dhp
