// Collectives of bytes sent from rank to rank. Every reduction is done once for each element, by one rank, in the
// order of the ranks: a sum has the same bits as between threads, over every transport. What is large goes in
// chunks, so that reducing one overlaps with the transfer of the next. All of them move the fewest bytes that
// are possible (Chan et al., "Collective communication: theory, practice, and experience", 2007, section 4);
// the number of messages grows with the ranks, not with their logarithm, but in barrier.
#pragma once

#include <dhp/comm/peer_group.hpp>
#include <dhp/comm/reduce_slice.hpp>
#include <dhp/core/copy_bytes.hpp>
#include <dhp/core/shape.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace dhp::detail {

/// The collectives of one call.
class PeerCollectives {
 public:
  PeerCollectives(PeerGroup& group, PeerGroup::Call& call) : group_(&group), call_(&call) {}

  /// Every rank's [first, last) of in, reduced into out, which may be in.
  void reduce_small(const std::byte* in, std::byte* out, std::int64_t count, DType dtype,
                    Reduce reduce) {
    const auto bytes = static_cast<std::size_t>(count) * size_of(dtype);
    auto* const brought = scratch(bytes * static_cast<std::size_t>(size()));
    const auto of = [&](int rank) { return brought + static_cast<std::size_t>(rank) * bytes; };
    copy_bytes(of(me()), in, bytes);
    for_others([&](int rank) { begin_receive(of(rank), bytes, rank); });
    for_others([&](int rank) { begin_send(of(me()), bytes, rank); });
    finish();
    visit_any(dtype, [&]<class T>(Tag<T>) {
      std::vector<const T*> blocks;
      for (int rank = 0; rank < size(); ++rank)
        blocks.push_back(reinterpret_cast<const T*>(of(rank)));
      reduce_slice<T>(blocks, {reinterpret_cast<T*>(out)}, 0, count, reduce);
    });
  }

  /// Rank r reduces slice_of(r), counted in elements, of everybody's `in` into `out`. Each chunk that is done
  /// is given to done(first, last), in elements of the slice.
  template <class SliceOf, class Done>
  void reduce_scatter(const std::byte* in, std::byte* out, DType dtype, Reduce reduce,
                      SliceOf slice_of, Done done) {
    const auto width = size_of(dtype);
    const auto at = [&](std::int64_t element) {
      return in + static_cast<std::size_t>(element) * width;
    };
    for_others([&](int rank) {
      const Range slice = slice_of(rank);
      for_chunks(slice.size(), width, [&](std::int64_t first, std::int64_t last) {
        begin_send(at(slice.first + first), static_cast<std::size_t>(last - first) * width, rank);
      });
    });
    const Range mine = slice_of(me());
    std::vector<Range> chunks;
    for_chunks(mine.size(), width, [&](std::int64_t first, std::int64_t last) {
      chunks.push_back({first, last});
    });
    const auto slots = std::min(chunks.size(), ahead);
    const auto place_bytes = chunk_bytes(static_cast<std::size_t>(mine.size()) * width);
    auto* const memory = scratch(slots * static_cast<std::size_t>(size()) * place_bytes);
    const auto place = [&](std::size_t chunk, int rank) {
      const auto slot = chunk % slots * static_cast<std::size_t>(size());
      return memory + (slot + static_cast<std::size_t>(rank)) * place_bytes;
    };
    std::size_t begun = 0;
    const auto receive = [&] {
      const auto chunk = chunks[begun];
      for_others([&](int rank) {
        begin_receive(place(begun, rank), static_cast<std::size_t>(chunk.size()) * width, rank);
      });
      ++begun;
    };
    while (begun < slots) receive();
    for (std::size_t k = 0; k < chunks.size(); ++k) {
      for_others([&](int) { finish_one(incoming_); });
      visit_any(dtype, [&]<class T>(Tag<T>) {
        std::vector<const T*> blocks;
        for (int rank = 0; rank < size(); ++rank)
          blocks.push_back(reinterpret_cast<const T*>(
              rank == me() ? at(mine.first + chunks[k].first) : place(k, rank)));
        auto* to = reinterpret_cast<T*>(out + static_cast<std::size_t>(chunks[k].first) * width);
        reduce_slice<T>(blocks, {to}, 0, chunks[k].size(), reduce);
      });
      done(chunks[k].first, chunks[k].last);
      if (begun < chunks.size()) receive();
    }
    finish();
  }

  /// In place. Slice r goes to rank r, which reduces it and gives it to all.
  void all_reduce(std::byte* buffer, std::int64_t count, DType dtype, Reduce reduce) {
    const auto width = size_of(dtype);
    const auto slice_of = [&](int rank) { return part_of(count, size(), rank); };
    const auto at = [&](std::int64_t element) {
      return buffer + static_cast<std::size_t>(element) * width;
    };
    // What comes back for a slice cannot come before it has been sent in whole: it may go to the same place.
    for_others([&](int rank) {
      const Range slice = slice_of(rank);
      for_chunks(slice.size(), width, [&](std::int64_t first, std::int64_t last) {
        returning_.add(call_->receive(at(slice.first + first),
                                      static_cast<std::size_t>(last - first) * width, rank, 1),
                       rank);
      });
    });
    const Range mine = slice_of(me());
    const auto give = [&](std::int64_t first, std::int64_t last) {
      for_others([&](int rank) {
        begin_send(at(mine.first + first), static_cast<std::size_t>(last - first) * width, rank, 1);
      });
    };
    reduce_scatter(buffer, at(mine.first), dtype, reduce, slice_of, give);
  }

  void all_gather(const std::byte* in, std::byte* out, std::size_t bytes) {
    for_others([&](int rank) {
      begin_receive(out + static_cast<std::size_t>(rank) * bytes, bytes, rank);
    });
    for_others([&](int rank) { begin_send(in, bytes, rank); });
    auto* own = out + static_cast<std::size_t>(me()) * bytes;
    copy_bytes(own, in, bytes);
    finish();
  }

  void all_to_all(const std::byte* in, std::byte* out, std::size_t block_bytes) {
    const auto offset = [&](int rank) { return static_cast<std::size_t>(rank) * block_bytes; };
    for_others([&](int rank) { begin_receive(out + offset(rank), block_bytes, rank); });
    for_others([&](int rank) { begin_send(in + offset(rank), block_bytes, rank); });
    copy_bytes(out + offset(me()), in + offset(me()), block_bytes);
    finish();
  }

  /// What is large is scattered by the root and gathered by all, so that no rank sends all of it to each.
  void broadcast(std::byte* buffer, std::size_t bytes, int root) {
    const bool scatter = bytes > small_bytes && size() > 2;
    const auto slice_of = [&](int rank) {
      return part_of(static_cast<std::int64_t>(bytes), size(), rank);
    };
    const auto slice = [&](int rank, auto act) {
      const auto part = slice_of(rank);
      act(buffer + part.first, static_cast<std::size_t>(part.size()));
    };
    if (me() == root) {
      for_others([&](int rank) {
        if (!scatter) begin_send(buffer, bytes, rank);
        else slice(rank, [&](std::byte* at, std::size_t n) { begin_send(at, n, rank); });
      });
    } else if (!scatter) {
      begin_receive(buffer, bytes, root);
    } else {
      slice(me(), [&](std::byte* at, std::size_t n) { begin_receive(at, n, root); });
      for_others([&](int rank) {
        slice(rank, [&](std::byte* at, std::size_t n) {
          returning_.add(call_->receive(at, n, rank, 1), rank);
        });
      });
      finish_all(incoming_);
    }
    if (scatter)
      for_others([&](int rank) {
        if (rank == root) return;
        slice(me(), [&](std::byte* at, std::size_t n) { begin_send(at, n, rank, 1); });
      });
    finish();
  }

  /// Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988: rounds of doubling distance.
  void barrier() {
    auto* const out = scratch(2);
    auto* const in = out + 1;
    *out = std::byte{};
    for (int distance = 1; distance < size(); distance *= 2) {
      begin_receive(in, 1, (me() - distance + size()) % size());
      begin_send(out, 1, (me() + distance) % size());
      finish();
    }
  }

  static constexpr std::size_t small_bytes = 16384;  ///< less is dominated by latency

 private:
  // What all ranks send at a time stays within 16 MiB, and starting a transfer costs little. A slice that is not long
  // goes as one. A multiple of 256 KiB, since chunks lie side by side, and every element where its type may be.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t slice_bytes) const {
    constexpr std::size_t least = 1 << 18, whole = 1 << 21, of_all = 1 << 24;
    const auto share =
        std::max<std::size_t>(of_all / least / static_cast<std::size_t>(size()), 1) * least;
    return std::min(share, slice_bytes <= whole ? whole : group_->transport()->chunk_bytes());
  }
  static constexpr std::size_t ahead = 2;  // chunks that are received at the same time

  struct Transfer {
    PeerTransport::Handle handle;
    int rank;
  };
  /// They are finished in the order in which they were begun.
  struct Transfers {
    std::vector<Transfer> begun{};
    std::size_t finished = 0;
    void add(PeerTransport::Handle handle, int rank) { begun.push_back({std::move(handle), rank}); }
    [[nodiscard]] bool open() const { return finished < begun.size(); }
  };

  // The group's: it outlives the transfers also where an exception ends them.
  [[nodiscard]] std::byte* scratch(std::size_t bytes) { return group_->scratch(bytes); }
  [[nodiscard]] int me() const { return group_->rank(); }
  [[nodiscard]] int size() const { return group_->size(); }
  // Each rank begins with the one after it, so that not all send to the same one.
  template <class Action>
  void for_others(Action action) const {
    for (int step = 1; step < size(); ++step) action((me() + step) % size());
  }
  template <class Action>
  void for_chunks(std::int64_t count, std::size_t width, Action action) const {
    const auto bytes = static_cast<std::size_t>(count) * width;
    const auto most = static_cast<std::int64_t>(chunk_bytes(bytes) / width);
    for (std::int64_t first = 0; first < count; first += most)
      action(first, std::min(count, first + most));
  }
  void begin_send(const std::byte* data, std::size_t bytes, int to, int phase = 0) {
    outgoing_.add(call_->send(data, bytes, to, phase), to);
  }
  void begin_receive(std::byte* data, std::size_t bytes, int from) {
    incoming_.add(call_->receive(data, bytes, from), from);
  }
  void finish_one(Transfers& transfers) {
    auto& first = transfers.begun[transfers.finished++];
    call_->wait(first.handle, first.rank);
  }
  void finish_all(Transfers& transfers) {
    while (transfers.open()) finish_one(transfers);
  }
  void finish() {
    finish_all(incoming_);
    finish_all(returning_);
    finish_all(outgoing_);
  }

  PeerGroup* group_;
  PeerGroup::Call* call_;
  Transfers incoming_, returning_, outgoing_;
};

}  // namespace dhp::detail
