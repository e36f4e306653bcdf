// CommObserver sees every call of a communicator and of all groups split off from it, to trace, check or record calls.
#pragma once

#include <dhp/comm/comm.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

template <class Dev>
class CommObserver {
 public:
  /// Lives while the observed call runs.
  class Watch {
   public:
    virtual ~Watch() = default;
    /// Called after a collective has started or a message or barrier has ended; returns the event for the caller.
    [[nodiscard]] virtual Event<Dev> started(Event<Dev> event) { return event; }
  };

  virtual ~CommObserver() = default;
  /// Called before each call of this rank. dev is null for barrier and split. May throw, which prevents the call. The
  /// result may be null.
  [[nodiscard]] virtual std::unique_ptr<Watch> before(Dev* dev, const CommCall& call) = 0;
  /// Returns the observer of `part`, a new subgroup with this rank. Collective over `part`.
  [[nodiscard]] virtual std::shared_ptr<CommObserver> of_part(Comm<Dev> part, CallSite where) = 0;
};

namespace detail {

/// Watches a call by an object that lives as long as the call.
template <class Dev, class T>
struct Holding final : CommObserver<Dev>::Watch {
  explicit Holding(auto&&... parts) : held(std::forward<decltype(parts)>(parts)...) {}
  T held;
};

/// A communicator whose calls are shown to an observer.
template <class Dev>
class ObservedComm {
 public:
  ObservedComm(Comm<Dev> comm, std::shared_ptr<CommObserver<Dev>> observer)
      : comm_(std::move(comm)), observer_(std::move(observer)) {}

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] int send_capacity() const { return comm_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return comm_.transport(); }

  Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    const auto watch = observer_->before(&dev, collective.call);
    auto event = comm_.start(dev, collective);
    return watch ? watch->started(std::move(event)) : event;
  }
  void send(Dev& dev, Tensor<Dev> message, int to, CallSite where) {
    observed(&dev, {CallKind::send, message.count(), message.dtype(), Reduce::sum, to, where},
             [&] { comm_.send(dev, std::move(message), to, where); });
  }
  void recv(Dev& dev, View<Dev> buffer, int from, CallSite where) {
    observed(&dev, {CallKind::recv, buffer.count(), buffer.dtype(), Reduce::sum, from, where},
             [&] { comm_.recv(dev, buffer, from, where); });
  }
  void expect(Dev& dev, DType dtype, const Shape& shape, int from, CallSite where) {
    comm_.expect(dev, dtype, shape, from, where);
  }
  void barrier(CallSite where) {
    observed(nullptr, {.kind = CallKind::barrier, .where = where}, [&] { comm_.barrier(where); });
  }
  void synchronize(Dev& dev) { comm_.synchronize(dev); }
  [[nodiscard]] ObservedComm split(int color, int key, CallSite where) {
    const auto watch = observer_->before(nullptr, {.kind = CallKind::split, .where = where});
    auto part = comm_.split(color, key, where);
    auto observer = observer_->of_part(part, where);
    return {std::move(part), std::move(observer)};
  }
  void abort(const std::string& message) { comm_.abort(message); }

 private:
  void observed(Dev* dev, const CommCall& call, auto run) {
    const auto watch = observer_->before(dev, call);
    run();
    if (watch) (void)watch->started({});
  }

  Comm<Dev> comm_;
  std::shared_ptr<CommObserver<Dev>> observer_;
};

}  // namespace detail

/// Returns `comm` with every call shown to the observer.
template <class Dev>
[[nodiscard]] Comm<Dev> observe(Comm<Dev> comm, std::shared_ptr<CommObserver<Dev>> observer) {
  return Comm<Dev>::of(detail::ObservedComm<Dev>(std::move(comm), std::move(observer)));
}

}  // namespace dhp
