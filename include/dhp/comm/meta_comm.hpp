// MetaComm: one rank of a group without other ranks. It exchanges nothing, so it is for devices without data.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/mesh.hpp>

#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class MetaComm {
 public:
  struct Place {
    int rank = 0, size = 1;
  };
  /// splits: the results of this rank's splits, in order; further splits return the whole group.
  explicit MetaComm(Place place, std::vector<Place> splits = {})
      : place_(place), splits_(std::move(splits)) {}
  /// A world for a Mesh of this shape.
  [[nodiscard]] static MetaComm world(MeshShape shape, int rank) {
    const int replica = rank / shape.tensor % shape.replicas();
    const Place pipeline{rank / (shape.tensor * shape.replicas()), shape.pipeline};
    std::vector<Place> splits{
        {rank % shape.tensor, shape.tensor}, {replica, shape.replicas()}, pipeline, pipeline};
    if (shape.context > 1) splits.push_back({replica % shape.context, shape.context});
    return MetaComm({rank, shape.size()}, std::move(splits));
  }

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  [[nodiscard]] int send_capacity() const { return 4; }
  [[nodiscard]] std::string transport() const { return "none"; }
  Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    collective.check_for(size());
    const auto bytes = static_cast<std::int64_t>(collective.call.bytes());
    count(dev, sent_bytes(collective.call.kind, bytes, size()));
    return {};
  }
  void send(Dev& dev, Tensor<Dev> message, int to, CallSite where) {
    detail::check_message(CallKind::send, rank(), size(), to, where);
    count(dev, static_cast<double>(message.size_bytes()));
  }
  void recv(Dev&, View<Dev>, int from, CallSite where) {
    detail::check_message(CallKind::recv, rank(), size(), from, where);
  }
  void barrier(CallSite) {}
  [[nodiscard]] MetaComm split(int color, int, CallSite) {
    if (color < 0) return MetaComm({});
    return MetaComm(next_ < splits_.size() ? splits_[next_++] : place_);
  }
  [[noreturn]] void abort(const std::string& message) { throw Error(message); }

 private:
  /// What this rank would send, if there were others.
  void count(Dev& dev, double bytes) {
    if constexpr (requires { dev.count_call(bytes); })
      if (size() > 1) dev.count_call(bytes);
  }

  Place place_;
  std::vector<Place> splits_;
  std::size_t next_ = 0;
};

}  // namespace dhp
