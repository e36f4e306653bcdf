// Comm: a communicator of any kind, cheap to copy. Layers, reducers and the mesh hold this, so that they
// are compiled once and not once per transport. A default one is a group of one.
#pragma once

#include <dhp/comm/self.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

template <class Dev>
class Comm {
 public:
  Comm() : Comm(of(SelfComm<Dev>())) {}

  template <Communicator<Dev> C>
  [[nodiscard]] static Comm of(C comm) {
    return Comm(std::make_shared<Model<C>>(std::move(comm)));
  }

  // No move: what is moved from would be no communicator at all.
  Comm(const Comm&) = default;
  Comm& operator=(const Comm&) = default;

  [[nodiscard]] int rank() const { return model_->rank(); }
  [[nodiscard]] int size() const { return model_->size(); }
  [[nodiscard]] int send_capacity() const { return model_->send_capacity(); }
  [[nodiscard]] std::string transport() const { return model_->transport(); }

  Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current()) {
    return model_->all_reduce(dev, buffer, reduce, where);
  }
  Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out,
                            CallSite where = CallSite::current()) {
    return model_->reduce_scatter(dev, in, out, where);
  }
  Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    return model_->all_gather(dev, in, out, where);
  }
  Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root, CallSite where = CallSite::current()) {
    return model_->broadcast(dev, buffer, root, where);
  }
  Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out,
                        CallSite where = CallSite::current()) {
    return model_->all_to_all(dev, in, out, where);
  }
  void send(Dev& dev, Tensor<Dev> message, int to, CallSite where = CallSite::current()) {
    model_->send(dev, std::move(message), to, where);
  }
  void recv(Dev& dev, View<Dev> message, int from, CallSite where = CallSite::current()) {
    model_->recv(dev, message, from, where);
  }
  void barrier(CallSite where = CallSite::current()) { model_->barrier(where); }
  [[nodiscard]] Comm split(int color, int key, CallSite where = CallSite::current()) {
    return model_->split(color, key, where);
  }
  /// Ends every rank of the world with this message.
  void abort(const std::string& message) { model_->abort(message); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual int send_capacity() const = 0;
    virtual std::string transport() const = 0;
    virtual Event<Dev> all_reduce(Dev&, View<Dev>, Reduce, CallSite) = 0;
    virtual Event<Dev> reduce_scatter(Dev&, ConstView<Dev>, View<Dev>, CallSite) = 0;
    virtual Event<Dev> all_gather(Dev&, ConstView<Dev>, View<Dev>, CallSite) = 0;
    virtual Event<Dev> broadcast(Dev&, View<Dev>, int, CallSite) = 0;
    virtual Event<Dev> all_to_all(Dev&, ConstView<Dev>, View<Dev>, CallSite) = 0;
    virtual void send(Dev&, Tensor<Dev>, int, CallSite) = 0;
    virtual void recv(Dev&, View<Dev>, int, CallSite) = 0;
    virtual void barrier(CallSite) = 0;
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
    Event<Dev> all_reduce(Dev& dev, View<Dev> buffer, Reduce reduce, CallSite where) override {
      return comm.all_reduce(dev, buffer, reduce, where);
    }
    Event<Dev> reduce_scatter(Dev& dev, ConstView<Dev> in, View<Dev> out, CallSite where) override {
      return comm.reduce_scatter(dev, in, out, where);
    }
    Event<Dev> all_gather(Dev& dev, ConstView<Dev> in, View<Dev> out, CallSite where) override {
      return comm.all_gather(dev, in, out, where);
    }
    Event<Dev> broadcast(Dev& dev, View<Dev> buffer, int root, CallSite where) override {
      return comm.broadcast(dev, buffer, root, where);
    }
    Event<Dev> all_to_all(Dev& dev, ConstView<Dev> in, View<Dev> out, CallSite where) override {
      return comm.all_to_all(dev, in, out, where);
    }
    void send(Dev& dev, Tensor<Dev> message, int to, CallSite where) override {
      comm.send(dev, std::move(message), to, where);
    }
    void recv(Dev& dev, View<Dev> message, int from, CallSite where) override {
      comm.recv(dev, message, from, where);
    }
    void barrier(CallSite where) override { comm.barrier(where); }
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

static_assert(Communicator<Comm<Cpu>, Cpu>);

}  // namespace dhp
