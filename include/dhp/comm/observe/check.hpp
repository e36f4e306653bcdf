// CallChecking compares the calls of a group's ranks before they start. If calls disagree, all ranks of a collective
// throw; for a message, the receiver throws. It is for debugging: each call costs one more small exchange.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/observe/observer.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class CallChecking final : public CommObserver<Dev> {
 public:
  /// Collective over `comm`. dev makes the exchange for calls without a device (barrier, split), on the calling thread,
  /// and must outlive this object and all groups split off.
  CallChecking(Dev& dev, Comm<Dev> comm, CallSite where = CallSite::current())
      : CallChecking(dev, comm.split(0, comm.rank(), where), comm.rank()) {}

  using typename CommObserver<Dev>::Watch;
  [[nodiscard]] std::unique_ptr<Watch> before(Dev* dev, const CommCall& call) override {
    auto& with = dev == nullptr ? *dev_ : *dev;
    if (call.kind == CallKind::send)
      talk_.send(with, Tensor<Dev>::from_host(with, {width}, written(call)), call.other,
                 call.where);
    else if (call.kind == CallKind::recv) compare_with_sender(with, call);
    else if (talk_.size() > 1) compare_all(with, call);
    return nullptr;
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Dev>> of_part(Comm<Dev> part,
                                                           CallSite where) override {
    return std::shared_ptr<CommObserver<Dev>>(
        new CallChecking(*dev_, part.split(0, part.rank(), where), world_rank_));
  }

 private:
  /// A rank's call, encoded in `width` bytes.
  struct Words {
    std::string what, where;
    std::string rank;  ///< world rank
  };
  static constexpr std::int64_t width = 256;

  CallChecking(Dev& dev, Comm<Dev> talk, int world_rank)
      : dev_(&dev), talk_(std::move(talk)), world_rank_(world_rank) {}

  void compare_with_sender(Dev& dev, const CommCall& call) {
    auto words = Tensor<Dev>::zeros(dev, DType::u8, {width});
    talk_.recv(dev, words.mut(), call.other, call.where);
    talk_.synchronize(dev);
    const auto sent = read(words.template to_host<std::uint8_t>(dev), 0);
    check(sent.what == call.agreed(), {"ranks do not agree: rank ", call.where}, sent.rank,
          " sends a ", sent.what, " at ", sent.where, ", rank ", world_rank_, " receives a ",
          call.agreed(), " at ", call.where);
  }
  void compare_all(Dev& dev, const CommCall& call) {
    const auto bytes = detail::rows_of_all(dev, talk_, written(call), call.where);
    const auto first = read(bytes, 0);
    for (int rank = 1; rank < talk_.size(); ++rank) {
      const auto other = read(bytes, rank);
      check(other.what == first.what, {"ranks do not agree: rank ", call.where}, first.rank,
            " calls ", first.what, " at ", first.where, ", rank ", other.rank, " calls ",
            other.what, " at ", other.where);
    }
  }
  [[nodiscard]] std::vector<std::uint8_t> written(const CommCall& call) const {
    std::string words;
    for (const auto& text :
         {call.agreed(), to_text(call.where).substr(0, 128), concat(world_rank_)})
      detail::append_field(words, text);
    words.resize(detail::as_size(width));
    return {words.begin(), words.end()};
  }
  [[nodiscard]] static Words read(const std::vector<std::uint8_t>& bytes, int rank) {
    const auto first = bytes.begin() + rank * width;
    const std::string own(first, first + width);
    detail::FieldReader fields(own);
    const auto next = [&] { return fields.field().value_or(""); };
    return {next(), next(), next()};
  }

  Dev* dev_;
  Comm<Dev> talk_;  // communicator of the same ranks, for the exchange
  int world_rank_;
};

}  // namespace dhp
