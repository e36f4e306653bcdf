// TracedComm: writes every call of a communicator into its device's trace: what was communicated when, and for how
// long the rank's work stood still because of it.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/rank_list.hpp>
#include <dhp/tensor/tensor.hpp>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {

/// The device has the result now; work that the rank's own thread issues has stood still for as long as `wait` says.
template <class Dev>
void end_communication(Dev& dev, TraceSpan communication, TraceSpan wait) {
  auto& trace = *dev.trace();
  communication.end = wait.end = dev.moment();
  trace.add(std::move(communication));
  wait.kind = TraceKind::wait;
  if (trace.at_work()) trace.add(std::move(wait));
}

/// How long a collective takes on a device that works by itself is not seen from outside of it. It is shown from the
/// point of the device's work at which it was issued to the one from which that work has the result.
template <class Dev>
class TracedWork final : public Event<Dev>::Work {
 public:
  TracedWork(Dev& dev, Event<Dev> event, TraceSpan span)
      : dev_(dev), event_(std::move(event)), span_(std::move(span)) {}
  [[nodiscard]] bool done() const override { return event_.done(); }
  void order() const override {
    traced([&] { event_.wait(); });
  }
  void order(Dev& dev) const override {
    traced([&] { event_.wait(dev); });
  }

 private:
  template <class Wait>
  void traced(Wait order) const {
    if (waited_) return order();
    auto wait = span_;
    wait.start = dev_.moment();
    order();
    waited_ = true;
    end_communication(dev_, span_, std::move(wait));
  }
  Dev& dev_;
  Event<Dev> event_;
  TraceSpan span_;
  mutable bool waited_ = false;
};

}  // namespace detail

template <class Dev>
class TracedComm {
 public:
  /// dev has a trace; it must outlive this and all that is split off it.
  TracedComm(Dev& dev, Comm<Dev> comm)
      : TracedComm(dev, comm, std::make_shared<int>(0), comm.rank()) {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] int send_capacity() const { return comm_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return comm_.transport(); }

  Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current()) {
    return collective(dev, "all_reduce", buffer, where,
                      [&] { return comm_.all_reduce(dev, buffer, reduce, where); });
  }
  Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                            CallSite where = CallSite::current()) {
    return collective(dev, "reduce_scatter", in, where,
                      [&] { return comm_.reduce_scatter(dev, in, out, where); });
  }
  Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    return collective(dev, "all_gather", out, where,
                      [&] { return comm_.all_gather(dev, in, out, where); });
  }
  Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root, CallSite where = CallSite::current()) {
    return collective(dev, "broadcast", buffer, where,
                      [&] { return comm_.broadcast(dev, buffer, root, where); });
  }
  Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    return collective(dev, "all_to_all", in, where,
                      [&] { return comm_.all_to_all(dev, in, out, where); });
  }
  void send(Dev& dev, Tensor<Dev> message, int to, CallSite where = CallSite::current()) {
    auto span = begin(dev, "send", message.size_bytes(), where);
    comm_.send(dev, std::move(message), to, where);
    end(dev, std::move(span));
  }
  void recv(Dev& dev, View<Dev> message, int from, CallSite where = CallSite::current()) {
    auto span = begin(dev, "recv", message.size_bytes(), where);
    comm_.recv(dev, message, from, where);
    end(dev, std::move(span));
  }
  void barrier(CallSite where = CallSite::current()) {
    auto span = begin(*dev_, "barrier", 0, where);
    comm_.barrier(where);
    end(*dev_, std::move(span));
  }
  [[nodiscard]] TracedComm split(int color, int key, CallSite where = CallSite::current()) {
    return TracedComm(*dev_, comm_.split(color, key, where), groups_, world_rank_);
  }
  void abort(const std::string& message) { comm_.abort(message); }

 private:
  TracedComm(Dev& dev, Comm<Dev> comm, std::shared_ptr<int> groups, int world_rank)
      : dev_(&dev),
        comm_(std::move(comm)),
        groups_(std::move(groups)),
        world_rank_(world_rank),
        name_(concat("group ", ++*groups_, ": ", rank_list(members()))) {}

  // By their numbers in the world.
  [[nodiscard]] std::set<int> members() {
    const auto mine =
        Tensor<Dev>::from_host(*dev_, Shape{1}, std::vector<std::int32_t>{world_rank_});
    auto all = Tensor<Dev>::zeros(*dev_, DType::i32, Shape{size()});
    comm_.all_gather(*dev_, mine, all.mut()).wait(*dev_);
    const auto ranks = all.template to_host<std::int32_t>(*dev_);
    return {ranks.begin(), ranks.end()};
  }

  [[nodiscard]] TraceSpan begin(Dev& dev, const char* name, std::size_t bytes,
                                const CallSite& where) {
    if (!lane_) lane_ = dev_->trace()->add_lane(name_);
    return {.kind = TraceKind::communication,
            .name = name,
            .start = dev.moment(),
            .lane = *lane_,
            .bytes = static_cast<std::int64_t>(bytes),
            .where = where};
  }
  static void end(Dev& dev, TraceSpan span) {
    auto wait = span;
    detail::end_communication(dev, std::move(span), std::move(wait));
  }

  template <class AnyView, class Call>
  Event<Dev> collective(Dev& dev, const char* name, const AnyView& view, const CallSite& where,
                        Call call) {
    auto span = begin(dev, name, view.size_bytes(), where);
    auto event = call();
    if constexpr (Dev::host_accessible) {  // it has been done by now
      end(dev, std::move(span));
      return event;
    } else {
      return Event<Dev>(
          std::make_shared<detail::TracedWork<Dev>>(dev, std::move(event), std::move(span)));
    }
  }

  Dev* dev_;
  Comm<Dev> comm_;
  std::shared_ptr<int> groups_;  // how many there are
  int world_rank_;
  std::string name_;
  std::optional<int> lane_;
};

static_assert(Communicator<TracedComm<Cpu>, Cpu>);

}  // namespace dhp
