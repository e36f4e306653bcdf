// Comm is a type-erased communicator, cheap to copy, so code that uses a Comm is compiled once for all engines. A
// default Comm is a group of one rank, in which every collective is the identity.
#pragma once

#include <dhp/comm/communicator.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

namespace detail {
template <class Dev>
class SelfComm {
 public:
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 1; }
  [[nodiscard]] int send_capacity() const { return 1; }
  [[nodiscard]] std::string transport() const { return "none"; }
  Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    const auto& [call, in, out] = collective;
    if (out.bytes() != in.bytes()) dev.copy(out.bytes(), in.bytes(), in.size_bytes());
    return {};
  }
  void send(Dev&, Tensor<Dev>, int, CallSite) {}  // there is no rank for a message, so Comm throws
  void recv(Dev&, View<Dev>, int, CallSite) {}
  void barrier(CallSite) {}
  [[nodiscard]] SelfComm split(int, int, CallSite) { return {}; }
  /// Throws Error(message), because there is no other rank to stop.
  [[noreturn]] void abort(const std::string& message) { throw Error(message); }
};
}  // namespace detail

/// A group of ranks. See Collective for what calls read and write, and Communicator for when buffers are free again. A
/// call that does not fit the group throws Error before the communicator sees it.
template <class Dev>
class Comm {
 public:
  Comm() : Comm(of(detail::SelfComm<Dev>())) {}

  template <class C>
  [[nodiscard]] static Comm of(C comm) {
    static_assert(detail::HasRankAndSize<C>,
                  "a communicator lacks rank(), size() or send_capacity()");
    static_assert(detail::HasStart<C, Dev>,
                  "a communicator lacks Event<Dev> start(Dev&, const Collective<Dev>&)");
    static_assert(detail::HasSendAndRecv<C, Dev>,
                  "a communicator lacks send(Dev&, Tensor<Dev>, int, CallSite) or recv(Dev&, "
                  "View<Dev>, int, CallSite)");
    static_assert(detail::HasGroupCalls<C>,
                  "a communicator lacks barrier(CallSite), split(int, int, CallSite) that gives "
                  "its own kind, abort(std::string) or transport()");
    return Comm(std::shared_ptr<Base>(new Model<C>(std::move(comm))));
  }

  // Comm is copyable but not movable: a moved-from Comm would have no communicator.
  Comm(const Comm&) = default;
  Comm& operator=(const Comm&) = default;

  [[nodiscard]] int rank() const { return model_->rank(); }
  [[nodiscard]] int size() const { return model_->size(); }
  [[nodiscard]] int send_capacity() const { return model_->send_capacity(); }
  [[nodiscard]] std::string transport() const { return model_->transport(); }

  Event<Dev> start(Dev& dev, const Collective<Dev>& collective) {
    collective.check_for(size());
    return model_->start(dev, collective);
  }
  Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current()) {
    return start(dev, Collective<Dev>::all_reduce(buffer, reduce, where));
  }
  Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                            CallSite where = CallSite::current()) {
    return start(dev, Collective<Dev>::reduce_scatter(in, out, where));
  }
  Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    return start(dev, Collective<Dev>::all_gather(in, out, where));
  }
  Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root, CallSite where = CallSite::current()) {
    return start(dev, Collective<Dev>::broadcast(buffer, root, where));
  }
  Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    return start(dev, Collective<Dev>::all_to_all(in, out, where));
  }
  Event<Dev> shift(Dev& dev, ConstView<Dev> in, View<Dev> out,
                   CallSite where = CallSite::current()) {
    return start(dev, Collective<Dev>::shift(in, out, where));
  }

  void send(Dev& dev, Tensor<Dev> message, int to, CallSite where = CallSite::current()) {
    detail::check_message(CallKind::send, rank(), size(), to, where);
    model_->send(dev, std::move(message), to, where);
  }
  void recv(Dev& dev, View<Dev> buffer, int from, CallSite where = CallSite::current()) {
    detail::check_message(CallKind::recv, rank(), size(), from, where);
    model_->recv(dev, buffer, from, where);
  }
  /// Announces the next recv from rank `from`, so that its message can arrive while this rank computes. Engines without
  /// expect() ignore the call.
  void expect(Dev& dev, DType dtype, const Shape& shape, int from,
              CallSite where = CallSite::current()) {
    detail::check_message(CallKind::recv, rank(), size(), from, where);
    model_->expect(dev, dtype, shape, from, where);
  }
  void barrier(CallSite where = CallSite::current()) { model_->barrier(where); }
  /// Makes the host wait for all earlier work of the device; call it before the host reads results of collectives.
  /// Throws Aborted if the world has ended, because received data may then be garbage.
  void synchronize(Dev& dev) { model_->synchronize(dev); }
  /// Returns this rank's new group: the ranks of its color, ordered by key. A negative color gives a group of one.
  [[nodiscard]] Comm split(int color, int key, CallSite where = CallSite::current()) {
    return model_->split(color, key, where);
  }
  /// Stops every rank of the world with this message.
  void abort(const std::string& message) { model_->abort(message); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual int send_capacity() const = 0;
    virtual std::string transport() const = 0;
    virtual Event<Dev> start(Dev&, const Collective<Dev>&) = 0;
    virtual void send(Dev&, Tensor<Dev>, int, CallSite) = 0;
    virtual void recv(Dev&, View<Dev>, int, CallSite) = 0;
    virtual void expect(Dev&, DType, const Shape&, int, CallSite) = 0;
    virtual void barrier(CallSite) = 0;
    virtual void synchronize(Dev&) = 0;
    virtual Comm split(int, int, CallSite) = 0;
    virtual void abort(const std::string&) = 0;
  };
  template <class C>
  struct Model final : Base {
    explicit Model(C held) : comm(std::move(held)) {}
    int rank() const override { return comm.rank(); }
    int size() const override { return comm.size(); }
    int send_capacity() const override { return comm.send_capacity(); }
    std::string transport() const override { return comm.transport(); }
    Event<Dev> start(Dev& dev, const Collective<Dev>& collective) override {
      return comm.start(dev, collective);
    }
    void send(Dev& dev, Tensor<Dev> message, int to, CallSite where) override {
      comm.send(dev, std::move(message), to, where);
    }
    void recv(Dev& dev, View<Dev> buffer, int from, CallSite where) override {
      comm.recv(dev, buffer, from, where);
    }
    void expect(Dev& dev, DType dtype, const Shape& shape, int from, CallSite where) override {
      if constexpr (requires { comm.expect(dev, dtype, shape, from, where); })
        comm.expect(dev, dtype, shape, from, where);
    }
    void barrier(CallSite where) override { comm.barrier(where); }
    void synchronize(Dev& dev) override {
      if constexpr (requires { comm.synchronize(dev); }) comm.synchronize(dev);
      else dev.synchronize();
    }
    Comm split(int color, int key, CallSite where) override {
      auto part = comm.split(color, key, where);
      return part.size() == 1 ? Comm() : Comm::of(std::move(part));
    }
    void abort(const std::string& message) override { comm.abort(message); }
    C comm;
  };

  explicit Comm(std::shared_ptr<Base> model) : model_(std::move(model)) {}
  std::shared_ptr<Base> model_;
};

static_assert(Communicator<detail::SelfComm<Cpu>, Cpu>);
static_assert(Communicator<Comm<Cpu>, Cpu>);

}  // namespace dhp
