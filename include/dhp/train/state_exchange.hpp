// StateExchange: ranks that hold pieces of weights and optimizer state send them to the ranks that need them, between
// any two layouts. All holders of a large piece send parts of it at the same time.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/nn/pieces.hpp>
#include <dhp/optim/optimizer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The pieces of weights and optimizer state that are valid on this rank by itself: of weights that replicas share out
/// (ZeRO) only its own shares and copies, not what an all-gather has brought.
template <class Dev>
[[nodiscard]] std::vector<HeldPiece<Dev>> own_state(ParameterStore<Dev>& store,
                                                    Optimizer<Dev>& optimizer) {
  auto pieces = store.pieces(true);
  for (const auto& buffer : optimizer.state())
    for (auto& piece : store.pieces(buffer.name, *buffer.buffer, buffer.narrow_only))
      pieces.push_back(std::move(piece));
  return pieces;
}

template <class Dev>
class StateExchange {
 public:
  using Pieces = std::vector<HeldPiece<Dev>>;

  /// Collective. held: the pieces that this rank has; needed: the pieces that it is to get, in memory of their own.
  /// Returns the names of pieces that some rank needs and no rank holds, the same on all ranks; those are left unwritten.
  [[nodiscard]] static std::set<std::string> run(Dev& dev, Comm<Dev>& world, const Pieces& held,
                                                 const Pieces& needed) {
    StateExchange exchange(dev, world, held, needed);
    exchange.go();
    return std::move(exchange.missing_);
  }

 private:
  /// A piece without its memory, as it is told to other ranks.
  struct Described {
    Piece piece;
    void pass(comm::Fields& fields) {
      fields(piece.name, piece.shape, piece.dtype, piece.split_dim, piece.part, piece.range);
    }
  };
  struct Table {
    std::vector<Described> held, needed;
    void pass(comm::Fields& fields) { fields(held, needed); }
  };
  struct Source {
    int rank;
    std::size_t piece;
  };

  StateExchange(Dev& dev, Comm<Dev>& world, const Pieces& held, const Pieces& needed)
      : dev_(dev), world_(world), held_(held), needed_(needed) {
    Table mine;
    for (const auto& each : held) mine.held.push_back({each.piece});
    for (const auto& each : needed) mine.needed.push_back({each.piece});
    for (const auto& text : gather_texts(dev, world, comm::Fields::written(mine))) {
      auto table = comm::Fields::parsed<Table>(text);
      check(table.has_value(), "a rank tells of its state what this one cannot read");
      tables_.push_back(std::move(*table));
    }
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto& pieces = tables_[static_cast<std::size_t>(rank)].held;
      for (std::size_t at = 0; at < pieces.size(); ++at)
        sources_[pieces[at].piece.name].push_back({rank, at});
    }
  }

  // All ranks go through all transfers in the same order, so that none waits for one that waits for it.
  void go() {
    for (int to = 0; to < world_.size(); ++to) {
      const auto& pieces = tables_[static_cast<std::size_t>(to)].needed;
      for (std::size_t at = 0; at < pieces.size(); ++at) bring(to, at);
    }
  }
  void bring(int to, std::size_t at) {
    const auto& piece = tables_[static_cast<std::size_t>(to)].needed[at].piece;
    const auto& sources = sources_[piece.name];
    const auto chunk =
        std::max<std::int64_t>(chunk_bytes / static_cast<std::int64_t>(size_of(piece.dtype)), 1);
    std::size_t turn = at + static_cast<std::size_t>(to);
    for (std::int64_t first = 0; first < piece.count(); first += chunk, ++turn) {
      std::vector<Range> open{{first, std::min(first + chunk, piece.count())}};
      for (const auto& source : sources)
        if (source.rank == to) take(source, to, at, open);
      for (std::size_t k = 0; k < sources.size() && !open.empty(); ++k)
        take(sources[(turn + k) % sources.size()], to, at, open);
      if (!open.empty()) missing_.insert(piece.name);
    }
  }
  /// Moves those of the open elements that this source has; the rest stays open.
  void take(const Source& source, int to, std::size_t at, std::vector<Range>& open) {
    const auto& from = tables_[static_cast<std::size_t>(source.rank)].held[source.piece].piece;
    const auto& piece = tables_[static_cast<std::size_t>(to)].needed[at].piece;
    if (from.shape != piece.shape || from.dtype != piece.dtype || open.empty()) return;
    std::vector<Run> runs;  // whole: the place in the source
    std::vector<Range> still;
    for (const auto& range : open) {
      auto next = range.first;
      for_common_runs(from, piece.slice(range.first, range.last),
                      [&](std::int64_t there, std::int64_t here, std::int64_t count) {
                        const auto place = range.first + here;
                        if (place > next) still.push_back({next, place});
                        runs.push_back({there, place, count});
                        next = place + count;
                      });
      if (next < range.last) still.push_back({next, range.last});
    }
    open = std::move(still);
    if (!runs.empty()) move(source, to, at, runs);
  }
  void move(const Source& source, int to, std::size_t at, const std::vector<Run>& runs) {
    const int me = world_.rank();
    if (me != source.rank && me != to) return;
    const auto width = static_cast<std::int64_t>(
        size_of(tables_[static_cast<std::size_t>(to)].needed[at].piece.dtype));
    std::int64_t count = 0;
    for (const auto& run : runs) count += run.count;
    Tensor<Dev> message;
    if (me == source.rank) {
      const auto* from = held_[source.piece].data.bytes();
      if (me == to) return copy(needed_[at].data.bytes(), from, runs, width, true, true);
      message = Tensor<Dev>(dev_, DType::u8, Shape{count * width});
      copy(message.mut().bytes(), from, runs, width, false, true);
      return world_.send(dev_, std::move(message), to);
    }
    message = Tensor<Dev>(dev_, DType::u8, Shape{count * width});
    world_.recv(dev_, message.mut(), source.rank);
    copy(needed_[at].data.bytes(), message.view().bytes(), runs, width, true, false);
  }
  /// Where `to` or `from` is not a piece, it is a message with the runs one after the other.
  void copy(std::byte* to, const std::byte* from, const std::vector<Run>& runs, std::int64_t width,
            bool into_piece, bool out_of_piece) {
    std::int64_t packed = 0;
    for (const auto& run : runs) {
      dev_.copy(to + (into_piece ? run.held : packed) * width,
                from + (out_of_piece ? run.whole : packed) * width,
                static_cast<std::size_t>(run.count * width));
      packed += run.count;
    }
  }

  static constexpr std::int64_t chunk_bytes = 1 << 20;

  Dev& dev_;
  Comm<Dev>& world_;
  const Pieces& held_;
  const Pieces& needed_;
  std::vector<Table> tables_;  // by rank
  std::map<std::string, std::vector<Source>> sources_;
  std::set<std::string> missing_;
};

}  // namespace dhp
