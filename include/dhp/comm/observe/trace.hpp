// CallTracing writes a communicator's calls and waits into its device's trace.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/observe/observer.hpp>
#include <dhp/comm/rank_list.hpp>
#include <dhp/core/trace.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace dhp {

template <class Dev>
class CallTracing final : public CommObserver<Dev> {
 public:
  /// Observes all ranks of `comm`. dev must have a trace, and outlive this object and all groups split off. Collective.
  CallTracing(Dev& dev, Comm<Dev> comm)
      : CallTracing(dev, comm, comm.rank(), std::make_shared<int>(0)) {}

  using typename CommObserver<Dev>::Watch;
  [[nodiscard]] std::unique_ptr<Watch> before(Dev* dev, const CommCall& call) override {
    if (call.kind == CallKind::split) return nullptr;
    if (!track_) track_ = dev_->trace()->add_track(name_);
    auto& of = dev == nullptr ? *dev_ : *dev;
    return std::make_unique<Traced>(of,
                                    TraceSpan{.kind = TraceKind::communication,
                                              .name = name_of(call.kind),
                                              .start = of.moment(),
                                              .track = *track_,
                                              .bytes = static_cast<std::int64_t>(call.bytes()),
                                              .where = call.where},
                                    !call.is_message() && call.kind != CallKind::barrier);
  }
  [[nodiscard]] std::shared_ptr<CommObserver<Dev>> of_part(Comm<Dev> part, CallSite) override {
    return std::shared_ptr<CommObserver<Dev>>(
        new CallTracing(*dev_, std::move(part), world_rank_, groups_));
  }

 private:
  CallTracing(Dev& dev, Comm<Dev> comm, int world_rank, std::shared_ptr<int> groups)
      : dev_(&dev), world_rank_(world_rank), groups_(std::move(groups)) {
    const auto ranks = detail::rows_of_all<Dev, int>(dev, comm, {world_rank}, CallSite::current());
    name_ = concat("group ", ++*groups_, ": ", rank_list({ranks.begin(), ranks.end()}));
  }

  /// Ends both spans now, when the device has the result. `wait` is the time that the rank's own work was blocked.
  static void end(Dev& dev, TraceSpan communication, TraceSpan wait) {
    auto& trace = *dev.trace();
    communication.end = wait.end = dev.moment();
    trace.add(std::move(communication));
    wait.kind = TraceKind::wait;
    if (trace.at_work()) trace.add(std::move(wait));
  }

  class Traced final : public Watch {
   public:
    Traced(Dev& dev, TraceSpan span, bool collective)
        : dev_(dev), span_(std::move(span)), collective_(collective) {}
    [[nodiscard]] Event<Dev> started(Event<Dev> event) override {
      // Messages and barriers have no event; a collective has one even if it is done.
      if constexpr (!Dev::host_accessible)
        if (collective_)
          return Event<Dev>(std::make_shared<WorkOfDevice<Dev>>(dev_, std::move(event), span_));
      end(dev_, span_, span_);
      return event;
    }

   private:
    Dev& dev_;
    TraceSpan span_;
    bool collective_;
  };

  /// Traces a collective from its issue in the device's work to the point where its result is available.
  template <class D>
  class WorkOfDevice final : public Event<D>::Work {
   public:
    WorkOfDevice(D& dev, Event<D> event, TraceSpan span)
        : dev_(dev), event_(std::move(event)), span_(std::move(span)) {}
    [[nodiscard]] bool done() const override { return event_.done(); }
    void order() const override {
      traced([&] { event_.wait(); });
    }
    void order(D& dev) const override {
      traced([&] { event_.wait(dev); });
    }

   private:
    void traced(auto order) const {
      if (waited_) return order();
      auto wait = span_;
      wait.start = dev_.moment();
      order();
      waited_ = true;
      end(dev_, span_, std::move(wait));
    }
    D& dev_;
    Event<D> event_;
    TraceSpan span_;
    mutable bool waited_ = false;
  };

  Dev* dev_;
  int world_rank_;
  std::shared_ptr<int> groups_;  // number of groups so far
  std::string name_;
  std::optional<int> track_;
};

}  // namespace dhp
