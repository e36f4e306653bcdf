// CopyingTransport: send_copied() for transports that read what they send where it is.
#pragma once

#include <dhp/comm/peer_transport.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dhp {

class CopyingTransport : public PeerTransport {
 public:
  [[nodiscard]] Handle send_copied(const std::byte* data, std::size_t bytes, int to,
                                   std::uint64_t tag) override {
    auto copy = copies_->take();
    copy.assign(data, data + bytes);
    const auto* const memory = copy.data();  // moving a vector leaves its elements where they are
    auto transfer = send(memory, bytes, to, tag);
    return std::make_unique<Copied>(copies_, std::move(copy), std::move(transfer));
  }

 private:
  using Copy = std::vector<std::byte>;

  // Memory of messages that have been sent, so that pages are not made anew for each.
  class Copies {
   public:
    [[nodiscard]] Copy take() {
      const std::lock_guard lock(mutex_);
      if (free_.empty()) return {};
      auto copy = std::move(free_.back());
      free_.pop_back();
      return copy;
    }
    void give_back(Copy copy) {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(copy));
    }

   private:
    std::mutex mutex_;
    std::vector<Copy> free_;
  };
  class Copied final : public Transfer {
   public:
    Copied(std::shared_ptr<Copies> copies, Copy copy, Handle transfer)
        : copies_(std::move(copies)), copy_(std::move(copy)), transfer_(std::move(transfer)) {}
    [[nodiscard]] bool wait() override {
      const bool done = transfer_->wait();
      transfer_.reset();
      if (done) copies_->give_back(std::move(copy_));
      return done;
    }

   private:
    std::shared_ptr<Copies> copies_;
    Copy copy_;
    Handle transfer_;  // goes before the copy
  };
  std::shared_ptr<Copies> copies_ = std::make_shared<Copies>();
};

}  // namespace dhp
