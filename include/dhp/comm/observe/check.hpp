// CheckedComm: before every call the ranks of its group tell each other what they are about to do, over a
// communicator of its own, and all throw where they do not agree: an error in the place of a hang, or of wrong
// numbers. For the search of such a mistake: each call costs one small collective more, and a device waits for it.
#pragma once

#include <dhp/comm/comm.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class CheckedComm {
 public:
  /// Collective over the group. dev: for what the ranks tell each other; it must outlive this and all that is split
  /// off it, and be used by the calling thread alone.
  CheckedComm(Dev& dev, Comm<Dev> comm, CallSite where = CallSite::current())
      : CheckedComm(dev, comm, comm.split(0, comm.rank(), where), comm.rank()) {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] int send_capacity() const { return comm_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return comm_.transport() + ", checked"; }

  Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current()) {
    agree(dev, concat("all_reduce of ", text(buffer), " (", name_of(reduce), ")"), where);
    return comm_.all_reduce(dev, buffer, reduce, where);
  }
  Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                            CallSite where = CallSite::current()) {
    agree(dev, concat("reduce_scatter of ", text(in), " to ", text(out)), where);
    return comm_.reduce_scatter(dev, in, out, where);
  }
  Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    agree(dev, concat("all_gather of ", text(in), " to ", text(out)), where);
    return comm_.all_gather(dev, in, out, where);
  }
  Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root, CallSite where = CallSite::current()) {
    agree(dev, concat("broadcast of ", text(buffer), " from rank ", root), where);
    return comm_.broadcast(dev, buffer, root, where);
  }
  Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    agree(dev, concat("all_to_all of ", text(in), " to ", text(out)), where);
    return comm_.all_to_all(dev, in, out, where);
  }
  void send(Dev& dev, Tensor<Dev> message, int to, CallSite where = CallSite::current()) {
    talk_.send(dev, written(dev, text(message), where), to, where);
    comm_.send(dev, std::move(message), to, where);
  }
  void recv(Dev& dev, View<Dev> message, int from, CallSite where = CallSite::current()) {
    auto words = Tensor<Dev>::zeros(dev, DType::u8, Shape{width});
    talk_.recv(dev, words.mut(), from, where);
    const auto other = read(words.template to_host<std::uint8_t>(dev), 0);
    if (other.what != text(message))
      throw Error(concat("ranks do not agree: rank ", other.rank, " sends ", other.what, " at ",
                         other.where, ", rank ", world_rank_, " receives ", text(message), " at ",
                         to_text(where)),
                  where);
    comm_.recv(dev, message, from, where);
  }
  void barrier(CallSite where = CallSite::current()) {
    agree(*dev_, "barrier", where);
    comm_.barrier(where);
  }
  [[nodiscard]] CheckedComm split(int color, int key, CallSite where = CallSite::current()) {
    agree(*dev_, "split", where);
    auto part = comm_.split(color, key, where);
    auto talk = talk_.split(color, key, where);
    return CheckedComm(*dev_, std::move(part), std::move(talk), world_rank_);
  }
  void abort(const std::string& message) { comm_.abort(message); }

 private:
  /// What a rank is about to do, in so many bytes.
  struct Words {
    std::string what;
    std::string where;
    std::string rank;  ///< of the world
  };
  static constexpr std::int64_t width = 256;

  CheckedComm(Dev& dev, Comm<Dev> comm, Comm<Dev> talk, int world_rank)
      : dev_(&dev), comm_(std::move(comm)), talk_(std::move(talk)), world_rank_(world_rank) {}

  template <class AnyView>
  [[nodiscard]] static std::string text(const AnyView& view) {
    return concat(view.dtype(), " ", view.shape());
  }
  [[nodiscard]] Tensor<Dev> written(Dev& dev, std::string what, const CallSite& where) const {
    constexpr std::size_t longest = 160;
    if (what.size() > longest) what.resize(longest);
    auto words = concat(what, '\n', to_text(where), '\n', world_rank_, '\n');
    words.resize(static_cast<std::size_t>(width));
    return Tensor<Dev>::from_host(dev, Shape{width},
                                  std::vector<std::uint8_t>(words.begin(), words.end()));
  }
  [[nodiscard]] static Words read(const std::vector<std::uint8_t>& bytes, std::size_t rank) {
    auto at = bytes.begin() + static_cast<std::ptrdiff_t>(rank) * width;
    const auto end = at + width;
    const auto line = [&] {
      std::string field;
      for (; at != end && *at != '\n'; ++at) field += static_cast<char>(*at);
      if (at != end) ++at;
      return field;
    };
    Words words;
    words.what = line();
    words.where = line();
    words.rank = line();
    return words;
  }
  void agree(Dev& dev, const std::string& what, const CallSite& where) {
    if (size() == 1) return;
    auto all = Tensor<Dev>::zeros(dev, DType::u8, Shape{size(), width});
    talk_.all_gather(dev, written(dev, what, where), all.mut(), where).wait(dev);
    const auto bytes = all.template to_host<std::uint8_t>(dev);
    const auto first = read(bytes, 0);
    for (std::size_t rank = 1; rank < static_cast<std::size_t>(size()); ++rank) {
      const auto other = read(bytes, rank);
      if (other.what != first.what)
        throw Error(
            concat("ranks do not agree: rank ", first.rank, " calls ", first.what, " at ",
                   first.where, ", rank ", other.rank, " calls ", other.what, " at ", other.where),
            where);
    }
  }

  Dev* dev_;
  Comm<Dev> comm_;
  Comm<Dev> talk_;  // the same ranks
  int world_rank_;
};

static_assert(Communicator<CheckedComm<Cpu>, Cpu>);

}  // namespace dhp
