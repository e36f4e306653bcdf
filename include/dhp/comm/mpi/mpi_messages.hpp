// MpiMessages sends a group's messages over an MPI communicator. MPI progresses only inside calls, so a wait polls. At
// the world's end MPI cannot cancel all pending transfers; after 2 s their memory is kept forever. Needs MPI.
#pragma once

#include <dhp/comm/latch.hpp>
#include <dhp/comm/messages/messages.hpp>
#include <dhp/comm/mpi/context.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

class MpiMessages final : public Messages {
 public:
  /// MPI counts bytes as int, so longer messages are split.
  static constexpr std::size_t longest_piece_bytes = std::size_t{1} << 30;

  /// Makes the messages between all ranks of the world.
  MpiMessages(Latch& latch, const std::shared_ptr<MpiContext>& context,
              std::size_t piece_bytes = longest_piece_bytes)
      : MpiMessages(latch, context, context->comm(), piece_bytes) {}

  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, Peer to, std::uint64_t tag,
                            std::shared_ptr<const void> owner = {}) override {
    return begin(
        bytes, to, true, std::move(owner), [&](std::size_t at, int piece, MPI_Request* request) {
          return MPI_Isend(data + at, piece, MPI_BYTE, to.rank, mpi_tag(tag), comm_, request);
        });
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, Peer from,
                               std::uint64_t tag) override {
    return begin(bytes, from, false, {}, [&](std::size_t at, int piece, MPI_Request* request) {
      return MPI_Irecv(data + at, piece, MPI_BYTE, from.rank, mpi_tag(tag), comm_, request);
    });
  }
  /// Uses MPI's own collectives for barriers and small integer sums, because they need fewer rounds. Float sums must
  /// stay in rank order. Long sums are not faster with MPI, and could not be canceled.
  [[nodiscard]] Handle start(const Collective<Cpu>& collective) override {
    const auto& [call, in, out] = collective;
    if (call.kind == CallKind::barrier)
      return begin_own(
          {}, {}, [&](std::byte*, MPI_Request* request) { return MPI_Ibarrier(comm_, request); });
    const bool integers = call.dtype == DType::i32 || call.dtype == DType::i64;
    if (call.kind != CallKind::all_reduce || call.reduce != Reduce::sum || !integers ||
        call.bytes() > longest_own_bytes)
      return nullptr;
    const auto type = call.dtype == DType::i32 ? MPI_INT32_T : MPI_INT64_T;
    return begin_own(
        in, out,
        [&, count = static_cast<int>(call.count)](std::byte* memory, MPI_Request* request) {
          return MPI_Iallreduce(MPI_IN_PLACE, memory, count, type, MPI_SUM, comm_, request);
        });
  }
  // MPI copies a message inside the receiver's call, so a small chunk is still in cache when it is reduced.
  [[nodiscard]] std::size_t chunk_bytes() const override { return std::size_t{1} << 19; }
  /// MPI_Comm_split has no time limit, but no rank is missing: all have just exchanged `members`.
  [[nodiscard]] std::shared_ptr<Messages> of_part(const std::vector<int>& members,
                                                  int rank) override {
    const int color = *std::min_element(members.begin(), members.end());
    MPI_Comm result = MPI_COMM_NULL;
    context_->call([&] {
      check_mpi(MPI_Comm_split(comm_, color, rank, &result), "MPI_Comm_split");
      context_->adopt(result);
    });
    return std::shared_ptr<Messages>(new MpiMessages(*latch_, context_, result, piece_bytes_));
  }
  [[nodiscard]] std::string description() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "MPI";
    const std::string whole(text);  // may have many lines, or be "Open MPI v4.1.4, package: ..."
    auto name = whole.substr(0, whole.find_first_of(",\n"));
    std::replace(name.begin(), name.end(), '\t', ' ');
    return concat("MPI (", name, ")");
  }

 private:
  static constexpr std::size_t longest_own_bytes = 16384;

  MpiMessages(Latch& latch, std::shared_ptr<MpiContext> context, MPI_Comm comm,
              std::size_t piece_bytes)
      : latch_(&latch), context_(std::move(context)), comm_(comm), piece_bytes_(piece_bytes) {}

  // MPI guarantees only 15 bits. Calls of one kind between two ranks are ordered, so equal tags are harmless.
  [[nodiscard]] static int mpi_tag(std::uint64_t tag) {
    constexpr std::uint64_t kind_and_phase = 3, prime = 8191;
    return static_cast<int>((tag >> 2) % prime << 2 | (tag & kind_and_phase));
  }

  class MpiTransfer : public Transfer, NonCopyable {
   public:
    MpiTransfer(const MpiMessages& of, Peer peer, bool sends, std::size_t bytes,
                std::shared_ptr<const void> owner)
        : latch_(of.latch_),
          context_(of.context_),
          peer_(peer),
          sends_(sends),
          bytes_(bytes),
          owner_(std::move(owner)) {}
    ~MpiTransfer() override {
      if (!done()) take_back();
    }
    /// Returns a new request for an MPI call that begins a part of the transfer.
    [[nodiscard]] MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
    void wait() override {
      // Polls without sleeping for the time that a slow network needs, because MPI may progress only inside calls.
      constexpr double slow_bytes_per_s = 1e9;
      Backoff backoff(0.001 + static_cast<double>(bytes_) / slow_bytes_per_s);
      while (!test()) {
        latch_->check_alive();
        backoff();
      }
    }

   private:
    [[nodiscard]] bool done() const {
      return std::all_of(requests_.begin(), requests_.end(),
                         [](MPI_Request request) { return request == MPI_REQUEST_NULL; });
    }
    [[nodiscard]] bool test() {
      return context_->call([&] {
        for (auto& request : requests_) {
          int done = 0;
          if (const int code = MPI_Test(&request, &done, MPI_STATUS_IGNORE); code != MPI_SUCCESS)
            throw PeerLost(peer_, mpi_error_text(code));
          if (done == 0) return false;
        }
        return true;
      });
    }
    // Cancels receives that have no message yet; other transfers get up to 2 s to finish.
    void take_back() noexcept {
      try {
        int finalized = 0;
        if (MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0) return;
        if (!sends_)
          context_->call([&] {
            for (auto& request : requests_)
              if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
          });
        Backoff backoff(0.001);
        while (!test()) {
          if (!context_->call([&] { return context_->has_grace(); })) return keep();
          backoff();
        }
      } catch (const std::exception&) {  // MPI itself has failed
        keep();
      }
    }

    void keep() noexcept {
      try {
        context_->call([&] { context_->keep(std::const_pointer_cast<void>(owner_)); });
      } catch (const std::exception&) {  // the session has been closed
      }
    }

    Latch* latch_;
    std::shared_ptr<MpiContext> context_;
    Peer peer_;
    bool sends_;
    std::size_t bytes_;
    std::shared_ptr<const void> owner_;
    std::vector<MPI_Request> requests_{};
  };

  /// An MPI collective in memory of its own, which MPI may use after the world has ended.
  class OwnCollective final : public Transfer {
   public:
    OwnCollective(std::unique_ptr<MpiTransfer> transfer, std::shared_ptr<std::byte[]> memory,
                  View<Cpu> out)
        : transfer_(std::move(transfer)), memory_(std::move(memory)), out_(out) {}
    void wait() override {
      transfer_->wait();
      if (out_.size_bytes() > 0) std::memcpy(out_.bytes(), memory_.get(), out_.size_bytes());
    }

   private:
    std::unique_ptr<MpiTransfer> transfer_;
    std::shared_ptr<std::byte[]> memory_;
    View<Cpu> out_;
  };

  [[nodiscard]] Handle begin(std::size_t bytes, Peer peer, bool sends,
                             std::shared_ptr<const void> owner, auto start) {
    auto result = std::make_unique<MpiTransfer>(*this, peer, sends, bytes, std::move(owner));
    context_->call([&] {
      std::size_t at = 0;
      do {  // an empty message is a message, too
        const auto piece = std::min(bytes - at, piece_bytes_);
        if (const int code = start(at, static_cast<int>(piece), result->add()); code != MPI_SUCCESS)
          throw PeerLost(peer, mpi_error_text(code));
        at += piece;
      } while (at < bytes);
    });
    return result;
  }
  [[nodiscard]] Handle begin_own(ConstView<Cpu> in, View<Cpu> out, auto start) {
    const auto bytes = in.size_bytes();
    const std::shared_ptr<std::byte[]> memory(new std::byte[bytes + 1]);
    if (bytes > 0) std::memcpy(memory.get(), in.bytes(), bytes);
    const int other = context_->rank() == 0 ? 1 : 0;
    // MPI cannot cancel a collective. Like a send, it gets time to finish, and then its memory is kept.
    auto transfer = std::make_unique<MpiTransfer>(*this, Peer{other, other}, true, bytes, memory);
    context_->call([&] { check_mpi(start(memory.get(), transfer->add()), "MPI"); });
    return std::make_unique<OwnCollective>(std::move(transfer), memory, out);
  }

  Latch* latch_;
  std::shared_ptr<MpiContext> context_;
  MPI_Comm comm_;
  std::size_t piece_bytes_;
};

}  // namespace dhp::detail
