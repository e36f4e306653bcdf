// StateExchange moves pieces of weights and optimizer state to the ranks that need them, between any two layouts. All
// holders of a large piece send parts of it at the same time; small pieces share a message.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/nn/pieces.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class StateExchange {
 public:
  using Pieces = std::vector<HeldPiece<Dev>>;
  /// The result, the same on all ranks.
  struct Outcome {
    std::set<std::string> missing;  ///< names of pieces that some rank needs and no rank holds
    std::size_t moved_bytes = 0;    ///< bytes that all ranks together have moved
  };

  /// Moves the pieces. Collective. held: the pieces that this rank has; needed: the pieces that it gets, in separate
  /// memory. Missing pieces remain unwritten.
  [[nodiscard]] static Outcome run(Dev& dev, Comm<Dev>& world, const Pieces& held,
                                   const Pieces& needed) {
    StateExchange exchange(dev, world, held, needed);
    exchange.go();
    return std::move(exchange.outcome_);
  }

 private:
  struct Table {
    std::vector<Piece> held, needed;
    void pass(detail::Fields& fields) { fields(held, needed); }
  };
  struct Source {
    int rank;
    std::size_t piece;
  };
  /// A run of elements that are contiguous in the source, and their destination.
  struct Stretch {
    std::int64_t from, to, count;
  };
  /// (distance from sender to receiver in the ring of ranks, sender). Sorted in this order, messages of equal distance
  /// form a round, in which every rank sends one and receives one.
  using Way = std::pair<int, int>;
  /// The parts of all pieces that one rank sends to another, one after another.
  struct Message {
    struct Part {
      std::size_t held, needed;
      std::vector<Stretch> stretches;  // ranges of bytes
    };
    std::vector<Part> parts;  // known only to sender and receiver
    std::int64_t bytes = 0;   // known to all ranks
  };

  StateExchange(Dev& dev, Comm<Dev>& world, const Pieces& held, const Pieces& needed)
      : dev_(dev), world_(world), held_(held), needed_(needed) {
    Table mine;
    for (const auto& each : held) mine.held.push_back(each.piece);
    for (const auto& each : needed) mine.needed.push_back(each.piece);
    tables_ = detail::gather_values(dev, world, mine);
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto& pieces = tables_[detail::as_size(rank)].held;
      for (std::size_t at = 0; at < pieces.size(); ++at)
        sources_[pieces[at].name].push_back({rank, at});
    }
  }

  // All ranks handle the transfers in the same order, so no two ranks wait for each other.
  void go() {
    detail::open_messages(dev_, world_);
    for (int to = 0; to < world_.size(); ++to) {
      const auto& pieces = tables_[detail::as_size(to)].needed;
      for (std::size_t at = 0; at < pieces.size(); ++at) bring(to, at);
    }
    for (auto& [way, message] : messages_)
      if (message.bytes > 0) deliver(way, message);
  }
  void bring(int to, std::size_t at) {
    const auto& piece = tables_[detail::as_size(to)].needed[at];
    const auto& sources = sources_[piece.name];
    const auto chunk =
        std::max<std::int64_t>(chunk_bytes / static_cast<std::int64_t>(size_of(piece.dtype)), 1);
    std::size_t turn = at + detail::as_size(to);
    for (std::int64_t first = 0; first < piece.count(); first += chunk, ++turn) {
      std::vector<Range> open{{first, std::min(first + chunk, piece.count())}};
      for (const auto& source : sources)
        if (source.rank == to) take(source, to, at, open);
      for (std::size_t k = 0; k < sources.size() && !open.empty(); ++k)
        take(sources[(turn + k) % sources.size()], to, at, open);
      if (!open.empty()) outcome_.missing.insert(piece.name);
    }
  }
  /// Moves the elements of `open` that this source holds, and removes them from `open`.
  void take(const Source& source, int to, std::size_t at, std::vector<Range>& open) {
    const auto& from = tables_[detail::as_size(source.rank)].held[source.piece];
    const auto& piece = tables_[detail::as_size(to)].needed[at];
    if (from.shape != piece.shape || from.dtype != piece.dtype || open.empty()) return;
    std::vector<Stretch> stretches;
    std::vector<Range> still;
    for (const auto& range : open) {
      auto next = range.first;
      detail::for_common_extents(from, piece.slice(range.first, range.last),
                                 [&](std::int64_t there, std::int64_t here, std::int64_t count) {
                                   const auto place = range.first + here;
                                   if (place > next) still.push_back({next, place});
                                   stretches.push_back({there, place, count});
                                   next = place + count;
                                 });
      if (next < range.last) still.push_back({next, range.last});
    }
    open = std::move(still);
    if (!stretches.empty()) move(source, to, at, std::move(stretches));
  }
  /// Copies within this rank immediately; otherwise adds to the message from the source's rank to rank `to`.
  void move(const Source& source, int to, std::size_t at, std::vector<Stretch> stretches) {
    const int me = world_.rank();
    const auto width = static_cast<std::int64_t>(
        size_of(tables_[detail::as_size(source.rank)].held[source.piece].dtype));
    std::int64_t bytes = 0;
    for (auto& stretch : stretches) {
      stretch = {stretch.from * width, stretch.to * width, stretch.count * width};
      bytes += stretch.count;
      if (source.rank == to && me == to)
        dev_.copy(needed_[at].data.bytes() + stretch.to,
                  held_[source.piece].data.bytes() + stretch.from, detail::as_size(stretch.count));
    }
    if (source.rank == to) return;
    outcome_.moved_bytes += detail::as_size(bytes);
    const Way way{(to - source.rank + world_.size()) % world_.size(), source.rank};
    auto& message = messages_[way];
    if (message.bytes > 0 && message.bytes + bytes > chunk_bytes) deliver(way, message);
    message.bytes += bytes;
    if (me == source.rank || me == to)
      message.parts.push_back({source.piece, at, std::move(stretches)});
  }
  void deliver(const Way& way, Message& message) {
    const auto [distance, from] = way;
    const int to = (from + distance) % world_.size();
    const bool sends = world_.rank() == from;
    if (sends || world_.rank() == to) {
      Tensor<Dev> bytes(dev_, DType::u8, {message.bytes});
      if (!sends) world_.recv(dev_, bytes.mut(), from);
      auto* next = bytes.mut().bytes();
      for (const auto& part : message.parts)
        for (const auto& stretch : part.stretches) {
          const auto count = detail::as_size(stretch.count);
          if (sends) dev_.copy(next, held_[part.held].data.bytes() + stretch.from, count);
          else dev_.copy(needed_[part.needed].data.bytes() + stretch.to, next, count);
          next += count;
        }
      if (sends) world_.send(dev_, std::move(bytes), to);
    }
    message = {};
  }

  static constexpr std::int64_t chunk_bytes = 1 << 20;

  Dev& dev_;
  Comm<Dev>& world_;
  const Pieces& held_;
  const Pieces& needed_;
  std::vector<Table> tables_;  // one table for each rank
  std::map<std::string, std::vector<Source>> sources_;
  std::map<Way, Message> messages_;
  Outcome outcome_;
};

}  // namespace dhp
