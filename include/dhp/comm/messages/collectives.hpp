// Collectives over point-to-point messages. Elements are reduced in rank order, so a sum has the same bits over every
// engine. For large buffers, ranks send the fewest bytes (Chan et al., "Collective communication: theory, practice, and
// experience", 2007, section 4), in chunks, so that reducing a chunk overlaps with receiving the next.
#pragma once

#include <dhp/comm/messages/messages.hpp>
#include <dhp/comm/reduce_slice.hpp>
#include <dhp/core/copy_bytes.hpp>
#include <dhp/core/shape.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Scratch memory kept between calls, because faulting in fresh pages costs more than the transfer.
class Scratch {
 public:
  /// Returns uninitialized memory, valid until the next call.
  [[nodiscard]] std::byte* get(std::size_t bytes) {
    if (bytes > bytes_ || !memory_) {
      memory_.reset();  // first, so that not both are in memory
      memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      bytes_ = bytes;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
};

class MessageCollective {
 public:
  /// scratch must outlive the transfers, even if an exception ends them. The transfers use the tags `tag` and tag + 1.
  /// members: world ranks of the group.
  MessageCollective(Messages& messages, Scratch& scratch, int rank, const std::vector<int>& members,
                    std::uint64_t tag)
      : messages_(&messages), scratch_(&scratch), rank_(rank), members_(&members), tag_(tag) {}

  void run(const Collective<Cpu>& collective) {
    const auto& [call, in, out] = collective;
    switch (call.kind) {
      case CallKind::all_reduce:
        if (in.size_bytes() <= small_bytes)
          return reduce_small(in.bytes(), out.bytes(), in.count(), in.dtype(), call.reduce);
        return all_reduce(out.bytes(), out.count(), out.dtype(), call.reduce);
      case CallKind::reduce_scatter:
        return reduce_scatter(
            in.bytes(), out.bytes(), in.dtype(), call.reduce,
            [share = out.count()](int rank) {
              return Range{rank * share, (rank + 1) * share};
            },
            [](Range) {});
      case CallKind::all_gather: return all_gather(in.bytes(), out.bytes(), in.size_bytes());
      case CallKind::broadcast: return broadcast(out.bytes(), out.size_bytes(), call.other);
      case CallKind::all_to_all: {
        const auto block = in.size_bytes() / as_size(size());
        return exchange(in.bytes(), block, out.bytes(), block);
      }
      case CallKind::shift: return shift(in.bytes(), out.bytes(), in.size_bytes());
      case CallKind::barrier: return barrier();
      default: throw Error(concat(name_of(call.kind), " is no collective"), call.where);
    }
  }
  void all_gather(const std::byte* in, std::byte* out, std::size_t bytes) {
    exchange(in, 0, out, bytes);
  }

 private:
  /// Block r of `out` has `bytes` bytes and comes from rank r. The blocks of `in` for the ranks are `step` bytes apart.
  void exchange(const std::byte* in, std::size_t step, std::byte* out, std::size_t bytes) {
    const auto from = [&](int rank) { return in + as_size(rank) * step; };
    const auto to = [&](int rank) { return out + as_size(rank) * bytes; };
    for_others([&](int rank) { begin_receive(to(rank), bytes, rank); });
    for_others([&](int rank) { begin_send(from(rank), bytes, rank); });
    copy_bytes(to(me()), from(me()), bytes);
    finish();
  }
  /// Reduces every rank's `in` into `out`, which may be `in`: each rank gathers all inputs and reduces them itself.
  void reduce_small(const std::byte* in, std::byte* out, std::int64_t count, DType dtype,
                    Reduce reduce) {
    const auto bytes = as_size(count) * size_of(dtype);
    auto* const brought = scratch(bytes * as_size(size()));
    const auto of = [&](int rank) { return brought + as_size(rank) * bytes; };
    all_gather(in, brought, bytes);
    Inputs blocks;
    for (int rank = 0; rank < size(); ++rank) blocks.push_back(of(rank));
    reduce_slice(dtype, blocks, {out}, 0, count, reduce);
  }

  /// Rank r reduces the elements slice_of(r) of every rank's `in` into `out`. Calls done(chunk) after each chunk.
  void reduce_scatter(const std::byte* in, std::byte* out, DType dtype, Reduce reduce,
                      auto slice_of, auto done) {
    const auto width = size_of(dtype);
    const auto at = [&](std::int64_t element) { return in + as_size(element) * width; };
    const auto bytes = [&](Range range) { return as_size(range.size()) * width; };
    const Range mine = slice_of(me());
    const auto chunks = chunks_of(mine, width);
    const auto slots = std::min(chunks.size(), ahead);
    const auto place_bytes = chunk_bytes(bytes(mine));
    auto* const memory = scratch(slots * as_size(size()) * place_bytes);
    const auto place = [&](std::size_t chunk, int rank) {
      const auto slot = chunk % slots * as_size(size());
      return memory + (slot + as_size(rank)) * place_bytes;
    };
    std::size_t begun = 0;
    const auto receive = [&] {
      for_others([&](int rank) { begin_receive(place(begun, rank), bytes(chunks[begun]), rank); });
      ++begun;
    };
    // Receives begin before sends, because an engine's request for a message would queue behind this rank's sends.
    while (begun < slots) receive();
    for_others([&](int rank) {
      for (const Range chunk : chunks_of(slice_of(rank), width))
        begin_send(at(chunk.first), bytes(chunk), rank);
    });
    for (std::size_t k = 0; k < chunks.size(); ++k) {
      for_others([&](int) { finish_one(incoming_); });
      const Range chunk = chunks[k];
      Inputs blocks;
      for (int rank = 0; rank < size(); ++rank)
        blocks.push_back(rank == me() ? at(chunk.first) : place(k, rank));
      auto* const to = out + bytes({mine.first, chunk.first});
      reduce_slice(dtype, blocks, {to}, 0, chunk.size(), reduce);
      done(chunk);
      if (begun < chunks.size()) receive();
    }
    finish();
  }

  /// Reduces in place: rank r reduces slice r and sends the result to all ranks.
  void all_reduce(std::byte* buffer, std::int64_t count, DType dtype, Reduce reduce) {
    const auto width = size_of(dtype);
    const auto slice_of = [&](int rank) { return part_of(count, size(), rank); };
    const auto at = [&](Range chunk) { return buffer + as_size(chunk.first) * width; };
    const auto bytes = [&](Range chunk) { return as_size(chunk.size()) * width; };
    // A chunk's result arrives only after this rank's own chunk was received, so both may use the same memory.
    for_others([&](int rank) {
      for (const Range chunk : chunks_of(slice_of(rank), width))
        begin_return(at(chunk), bytes(chunk), rank);
    });
    const auto give = [&](Range chunk) {
      for_others([&](int rank) { begin_send(at(chunk), bytes(chunk), rank, 1); });
    };
    reduce_scatter(buffer, at(slice_of(me())), dtype, reduce, slice_of, give);
  }

  void shift(const std::byte* in, std::byte* out, std::size_t bytes) {
    if (size() == 1) return copy_bytes(out, in, bytes);
    begin_receive(out, bytes, (me() + size() - 1) % size());
    begin_send(in, bytes, (me() + 1) % size());
    finish();
  }

  /// The root scatters a large buffer and the ranks all-gather it, so the root need not send all of it to each rank.
  void broadcast(std::byte* buffer, std::size_t bytes, int root) {
    const bool scatter = bytes > small_bytes && size() > 2;
    const auto all = static_cast<std::int64_t>(bytes);
    const auto slice = [&](int rank, auto act) {
      const auto part = scatter ? part_of(all, size(), rank) : Range{0, all};
      act(buffer + part.first, as_size(part.size()));
    };
    const auto send = [&](int of, int to, unsigned phase) {
      slice(of, [&](std::byte* at, std::size_t n) { begin_send(at, n, to, phase); });
    };
    if (me() == root) {
      for_others([&](int rank) { send(rank, rank, 0); });
    } else {
      slice(me(), [&](std::byte* at, std::size_t n) { begin_receive(at, n, root); });
      const auto receive_back = [&](int rank) {
        slice(rank, [&](std::byte* at, std::size_t n) { begin_return(at, n, rank); });
      };
      if (scatter) for_others(receive_back);
      finish_all(incoming_);
    }
    if (scatter)
      for_others([&](int rank) {
        if (rank != root) send(me(), rank, 1);
      });
    finish();
  }

  /// Dissemination barrier (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988).
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

  static constexpr std::size_t small_bytes = 16384;  // latency dominates below this
  // Returns the bytes of a chunk: the engine's chunk size, or 2 MiB for a slice of up to 2 MiB. The chunks of up to 64
  // ranks together have at most 16 MiB. Chunks are multiples of 256 KiB: they are adjacent, and elements must be
  // aligned.
  [[nodiscard]] std::size_t chunk_bytes(std::size_t slice_bytes) const {
    constexpr std::size_t least = 1 << 18, whole = 1 << 21, of_all = 1 << 24;
    const auto share = std::max<std::size_t>(of_all / least / as_size(size()), 1) * least;
    return std::min(share, slice_bytes <= whole ? whole : messages_->chunk_bytes());
  }
  static constexpr std::size_t ahead = 2;  // number of chunks received concurrently

  /// Transfers, finished in the order in which they began.
  struct Transfers {
    std::vector<Messages::Handle> begun{};
    std::size_t finished = 0;
    void add(Messages::Handle handle) { begun.push_back(std::move(handle)); }
    [[nodiscard]] bool open() const { return finished < begun.size(); }
  };

  [[nodiscard]] std::byte* scratch(std::size_t bytes) { return scratch_->get(bytes); }
  [[nodiscard]] int me() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(members_->size()); }
  [[nodiscard]] Peer peer(int rank) const { return {rank, (*members_)[as_size(rank)]}; }
  // Each rank starts with its successor, so that the ranks do not all send to one rank at the same time.
  void for_others(auto action) const {
    for (int step = 1; step < size(); ++step) action((me() + step) % size());
  }
  [[nodiscard]] std::vector<Range> chunks_of(Range slice, std::size_t width) const {
    const auto bytes = as_size(slice.size()) * width;
    const auto most = static_cast<std::int64_t>(chunk_bytes(bytes) / width);
    std::vector<Range> chunks;
    for (auto first = slice.first; first < slice.last; first += most)
      chunks.push_back({first, std::min(slice.last, first + most)});
    return chunks;
  }
  /// phase: 0 or 1, separates the two exchanges of one call.
  void begin_send(const std::byte* data, std::size_t bytes, int to, unsigned phase = 0) {
    outgoing_.add(messages_->send(data, bytes, peer(to), tag_ + phase));
  }
  void begin_receive(std::byte* data, std::size_t bytes, int from) {
    incoming_.add(messages_->receive(data, bytes, peer(from), tag_));
  }
  void begin_return(std::byte* data, std::size_t bytes, int from) {
    returning_.add(messages_->receive(data, bytes, peer(from), tag_ + 1));
  }
  void finish_one(Transfers& transfers) {
    auto& first = transfers.begun[transfers.finished++];
    first->wait();
    first.reset();
  }
  void finish_all(Transfers& transfers) {
    while (transfers.open()) finish_one(transfers);
  }
  void finish() {
    finish_all(incoming_);
    finish_all(returning_);
    finish_all(outgoing_);
  }

  Messages* messages_;
  Scratch* scratch_;
  int rank_;
  const std::vector<int>* members_;
  std::uint64_t tag_;
  Transfers incoming_, returning_, outgoing_;
};

}  // namespace dhp::detail
