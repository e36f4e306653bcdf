// Collective is a collective operation as a value: its kind, views, reduction, root and call site.
#pragma once

#include <dhp/tensor/view.hpp>

#include <cstdint>
#include <source_location>
#include <string>

namespace dhp {

enum class Reduce { sum, max, min };
[[nodiscard]] constexpr const char* name_of(Reduce reduce) {
  constexpr const char* names[] = {"sum", "max", "min"};
  return names[static_cast<int>(reduce)];
}

/// The source location of a call, for error messages.
using CallSite = std::source_location;

/// Every kind of call of a communicator. send and recv concern two ranks, all others the whole group.
enum class CallKind {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  shift,
  barrier,
  split,
  send,
  recv
};
[[nodiscard]] constexpr const char* name_of(CallKind kind) {
  constexpr const char* names[] = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
      "shift",      "barrier",        "split",      "send",      "recv"};
  static_assert(std::size(names) == detail::as_size(CallKind::recv) + 1);
  return names[static_cast<int>(kind)];
}

/// Returns the bytes that a rank sends to others, averaged over the group, by the optimal ring algorithms (Patarasuk
/// and Yuan 2009). bytes: size of one rank's input. A message counts at its sender only.
[[nodiscard]] constexpr double sent_bytes(CallKind kind, std::int64_t bytes, int ranks) {
  const auto brought = static_cast<double>(bytes);
  const auto others = static_cast<double>(ranks - 1);
  switch (kind) {
    case CallKind::all_reduce: return 2 * brought * others / ranks;
    case CallKind::reduce_scatter:
    case CallKind::broadcast:
    case CallKind::all_to_all: return brought * others / ranks;
    case CallKind::all_gather: return brought * others;
    case CallKind::shift:
    case CallKind::send: return brought;
    case CallKind::recv:
    case CallKind::barrier:
    case CallKind::split: return 0;
  }
  return 0;
}

/// A call without its buffers: the properties that all ranks must agree on, and the local call site.
struct CommCall {
  CallKind kind = CallKind::barrier;
  std::int64_t count = 0;  ///< number of elements of this rank's input, or of the message
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;
  int other = 0;  ///< root of a broadcast, or the other rank of a message
  CallSite where{};

  [[nodiscard]] bool is_message() const { return kind == CallKind::send || kind == CallKind::recv; }
  [[nodiscard]] std::size_t bytes() const { return detail::as_size(count) * size_of(dtype); }
  /// Returns the properties that ranks must agree on: "all_reduce of 5 f32 (sum)", "message of 5 f32".
  [[nodiscard]] std::string agreed() const {
    auto text = std::string(is_message() ? "message" : name_of(kind));
    if (kind == CallKind::barrier || kind == CallKind::split) return text;
    detail::append_text(text, concat(" of ", count, " ", dtype));
    if (kind == CallKind::all_reduce) detail::append_text(text, concat(" (", name_of(reduce), ")"));
    if (kind == CallKind::broadcast) detail::append_text(text, concat(" from rank ", other));
    return text;
  }
  /// Returns the call as errors show it: "all_reduce of 5 f32 (sum)", "recv of a message of 5 f32".
  [[nodiscard]] std::string description() const {
    return is_message() ? concat(name_of(kind), " of a ", agreed()) : agreed();
  }
  [[nodiscard]] bool agrees_with(const CommCall& call) const {
    return kind == call.kind && count == call.count && dtype == call.dtype &&
           (kind != CallKind::all_reduce || reduce == call.reduce) &&
           (kind != CallKind::broadcast || other == call.other);
  }
  friend std::string to_text(const CommCall& call) {
    return concat(call.description(), " at ", dhp::to_text(call.where));
  }
};

template <class Dev>
struct Collective {
  CommCall call;
  ConstView<Dev> in{};  ///< this rank's input
  View<Dev> out{};      ///< this rank's output; for all_reduce and broadcast the memory of `in`

  /// Reduces in place. Sums of 16-bit types accumulate in float; sums of integers wrap.
  [[nodiscard]] static Collective all_reduce(View<Dev> buffer, Reduce reduce = Reduce::sum,
                                             CallSite where = CallSite::current()) {
    return {
        {CallKind::all_reduce, buffer.count(), buffer.dtype(), reduce, 0, where}, buffer, buffer};
  }
  /// Sums over ranks: `in` has a block of out's shape for each rank, and rank r receives the sum of all blocks r.
  [[nodiscard]] static Collective reduce_scatter(ConstView<Dev> in, View<Dev> out,
                                                 CallSite where = CallSite::current()) {
    return {{CallKind::reduce_scatter, in.count(), in.dtype(), Reduce::sum, 0, where}, in, out};
  }
  /// `out` receives a block of in's shape from each rank.
  [[nodiscard]] static Collective all_gather(ConstView<Dev> in, View<Dev> out,
                                             CallSite where = CallSite::current()) {
    return {{CallKind::all_gather, in.count(), in.dtype(), Reduce::sum, 0, where}, in, out};
  }
  /// Copies the root's buffer to all ranks.
  [[nodiscard]] static Collective broadcast(View<Dev> buffer, int root,
                                            CallSite where = CallSite::current()) {
    return {{CallKind::broadcast, buffer.count(), buffer.dtype(), Reduce::sum, root, where},
            buffer,
            buffer};
  }
  /// Sends block r of `in` to rank r; block r of `out` comes from rank r. Does not work in place.
  [[nodiscard]] static Collective all_to_all(ConstView<Dev> in, View<Dev> out,
                                             CallSite where = CallSite::current()) {
    return {{CallKind::all_to_all, in.count(), in.dtype(), Reduce::sum, 0, where}, in, out};
  }
  /// Sends `in` to the next rank of a ring; `out` comes from the previous rank. Does not work in place.
  [[nodiscard]] static Collective shift(ConstView<Dev> in, View<Dev> out,
                                        CallSite where = CallSite::current()) {
    return {{CallKind::shift, in.count(), in.dtype(), Reduce::sum, 0, where}, in, out};
  }

  /// Throws Error if the views do not fit a group of this size.
  void check_for(int ranks) const {
    const detail::Located name(name_of(call.kind), call.where);
    const auto blocks = [&](const auto& whole, const auto& block) {
      check(whole.count() == block.count() * ranks && whole.dtype() == block.dtype(), name, ": ",
            whole.dtype(), " ", whole.shape(), " is not ", ranks, " blocks of ", block.dtype(), " ",
            block.shape());
    };
    const auto check_apart = [&] {
      check(in.bytes() != out.bytes() || in.count() == 0 || ranks == 1, name,
            " does not work in place");
    };
    switch (call.kind) {
      case CallKind::reduce_scatter: return blocks(in, out);
      case CallKind::all_gather: return blocks(out, in);
      case CallKind::broadcast:
        return check(call.other >= 0 && call.other < ranks, name, ": no rank ", call.other,
                     " in a group of ", ranks);
      case CallKind::all_to_all:
        check(in.count() == out.count() && in.dtype() == out.dtype() && in.count() % ranks == 0,
              name, ": ", in.dtype(), " ", in.shape(), " and ", out.dtype(), " ", out.shape(),
              " are not ", ranks, " equal blocks each");
        return check_apart();
      case CallKind::shift:
        check(in.count() == out.count() && in.dtype() == out.dtype(), name, ": ", in.dtype(), " ",
              in.shape(), " does not fit into ", out.dtype(), " ", out.shape());
        return check_apart();
      default: return;
    }
  }
};

namespace detail {
/// Throws Error if rank `rank` of `ranks` cannot exchange messages with rank `other`.
inline void check_message(CallKind kind, int rank, int ranks, int other, CallSite where) {
  check(other >= 0 && other < ranks && other != rank, {name_of(kind), where}, ": rank ", rank,
        " of ", ranks, " cannot ", kind == CallKind::send ? "send to" : "receive from", " rank ",
        other);
}
}  // namespace detail

}  // namespace dhp
