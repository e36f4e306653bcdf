// MetaComm: one rank of a group without other ranks. It exchanges nothing, so it is for devices without data.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/mesh.hpp>

#include <deque>
#include <map>
#include <memory>
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
  /// splits: the results of this rank's splits, in order; further splits return the whole group. threads: ranks take
  /// messages from each other; else an engine keeps the last few of a rank.
  explicit MetaComm(Place place, std::vector<Place> splits = {}, bool threads = false)
      : place_(place), splits_(std::move(splits)), threads_(threads) {}
  /// A world for a Mesh of this shape.
  [[nodiscard]] static MetaComm world(MeshShape shape, int rank, bool threads = false) {
    const int replica = rank / shape.tensor % shape.replicas();
    const Place pipeline{rank / (shape.tensor * shape.replicas()), shape.pipeline};
    std::vector<Place> splits{
        {rank % shape.tensor, shape.tensor}, {replica, shape.replicas()}, pipeline, pipeline};
    if (shape.context > 1) splits.push_back({replica % shape.context, shape.context});
    return MetaComm({rank, shape.size()}, std::move(splits), threads);
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
    if (threads_) return;
    auto& sent = messages_->sent[to];
    sent.push_back(std::move(message));
    if (std::ssize(sent) > send_capacity()) sent.pop_front();
  }
  void expect(Dev& dev, DType dtype, const Shape& shape, int from, CallSite) {
    if (!threads_) messages_->expected[from] = Tensor<Dev>(dev, dtype, shape);
  }
  void recv(Dev&, View<Dev>, int from, CallSite where) {
    detail::check_message(CallKind::recv, rank(), size(), from, where);
    messages_->expected.erase(from);
  }
  void barrier(CallSite) {}
  [[nodiscard]] MetaComm split(int color, int, CallSite) {
    if (color < 0) return MetaComm({});
    return MetaComm(next_ < splits_.size() ? splits_[next_++] : place_, {}, threads_);
  }
  [[noreturn]] void abort(const std::string& message) { throw Error(message); }

 private:
  /// Counts what this rank would send to others.
  void count(Dev& dev, double bytes) {
    if constexpr (requires { dev.count_call(bytes); })
      if (size() > 1) dev.count_call(bytes);
  }

  Place place_;
  std::vector<Place> splits_;
  bool threads_;
  std::size_t next_ = 0;
  struct Messages {
    std::map<int, std::deque<Tensor<Dev>>> sent{};  // key: the receiver
    std::map<int, Tensor<Dev>> expected{};
  };
  std::shared_ptr<Messages> messages_ = std::make_shared<Messages>();
};

}  // namespace dhp
