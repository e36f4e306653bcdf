// MetaComm stands for one rank of a group on a device without data. It has no other ranks and exchanges nothing.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/mesh.hpp>

#include <deque>
#include <map>
#include <memory>
#include <optional>
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
  /// Only for ranks as threads. Element i: the number of sends and receives of this rank after which its i-th sent
  /// message has been received. Messages beyond the list count as received at once.
  using ReceivedAfter = std::optional<std::vector<int>>;

  /// splits: the groups that this rank's splits return, in order; later splits return the whole group. Without
  /// `received`, ranks count as processes: their engine holds the last send_capacity() messages to each receiver.
  explicit MetaComm(Place place, std::vector<Place> splits = {}, ReceivedAfter received = {})
      : place_(place), splits_(std::move(splits)), received_after_(std::move(received)) {}
  /// Returns a world for a Mesh of this shape.
  [[nodiscard]] static MetaComm world(MeshShape shape, int rank, ReceivedAfter received = {}) {
    const int replica = rank / shape.tensor % shape.replicas();
    const Place pipeline{rank / (shape.tensor * shape.replicas()), shape.pipeline};
    std::vector<Place> splits{
        {rank % shape.tensor, shape.tensor}, {replica, shape.replicas()}, pipeline, pipeline};
    if (shape.context > 1) splits.push_back({replica % shape.context, shape.context});
    return MetaComm({rank, shape.size()}, std::move(splits), std::move(received));
  }

  [[nodiscard]] int rank() const { return place_.rank; }
  [[nodiscard]] int size() const { return place_.size; }
  [[nodiscard]] static int send_capacity() { return 4; }
  [[nodiscard]] std::string transport() const { return "none"; }
  Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    const auto bytes = static_cast<std::int64_t>(collective.call.bytes());
    count(dev, sent_bytes(collective.call.kind, bytes, size()));
    return {};
  }
  void send(Dev& dev, Tensor<Dev> message, int to, CallSite) {
    count(dev, static_cast<double>(message.size_bytes()));
    if (received_after_) {
      next_call();
      const auto number = messages_->sends++;
      if (number < received_after_->size())
        messages_->waiting.emplace((*received_after_)[number], std::move(message));
      return;
    }
    auto& sent = messages_->sent[{group_, to}];
    sent.push_back(std::move(message));
    if (std::ssize(sent) > send_capacity()) sent.pop_front();
  }
  void expect(Dev& dev, DType dtype, const Shape& shape, int from, CallSite) {
    if (!received_after_) messages_->expected[{group_, from}] = Tensor<Dev>(dev, dtype, shape);
  }
  void recv(Dev&, View<Dev>, int from, CallSite) {
    if (received_after_) next_call();
    messages_->expected.erase({group_, from});
  }
  /// Releases all sent messages of this group and of groups split from it; the counts of sends and receives restart.
  void all_received() {
    messages_->waiting.clear();
    messages_->calls = 0;
    messages_->sends = 0;
  }
  void barrier(CallSite) {}
  [[nodiscard]] MetaComm split(int color, int, CallSite) {
    if (color < 0) return MetaComm({});
    MetaComm part(next_ < splits_.size() ? splits_[next_++] : place_, {}, received_after_);
    part.messages_ = messages_;
    part.group_ = ++messages_->groups;
    return part;
  }
  [[noreturn]] void abort(const std::string& message) { throw Error(message); }

 private:
  /// Counts the bytes that this rank would send to others.
  void count(Dev& dev, double bytes) {
    if constexpr (requires { dev.count_call(bytes); })
      if (size() > 1) dev.count_call(bytes);
  }

  /// Releases the messages that have been received before this send or receive.
  void next_call() {
    auto& waiting = messages_->waiting;
    waiting.erase(waiting.begin(), waiting.lower_bound(++messages_->calls));
  }

  Place place_;
  std::vector<Place> splits_;
  ReceivedAfter received_after_;
  std::size_t next_ = 0;
  int group_ = 0;
  struct Messages {  // keyed by the group and the other rank
    std::map<std::pair<int, int>, std::deque<Tensor<Dev>>> sent{};
    std::map<std::pair<int, int>, Tensor<Dev>> expected{};
    std::multimap<int, Tensor<Dev>> waiting{};  // keyed by the number of calls before the receipt
    std::size_t sends = 0;
    int calls = 0, groups = 0;
  };
  std::shared_ptr<Messages> messages_ = std::make_shared<Messages>();
};

}  // namespace dhp
