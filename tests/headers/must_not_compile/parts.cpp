// Parts that lack a member, and wrong uses of parts.
#include <dhp/cpu.hpp>

using namespace dhp;

// error: a batcher lacks: HostBatch collate(
// error: a batcher lacks: std::int64_t size() const
struct Samples {
#ifdef GOOD
  [[nodiscard]] std::int64_t size() const { return 8; }
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t>, std::int64_t) const { return {}; }
#endif
};
void load(Cpu& dev) { Loader<Cpu, Samples> loader(dev, Samples{}, {}); }

// error: data.size()
struct Numbers {
  using Sample = std::int64_t;
#ifdef GOOD
  [[nodiscard]] std::int64_t size() const { return 8; }
#endif
  [[nodiscard]] Sample get(std::int64_t index) const { return index; }
};
auto parts_of_numbers() { return split_fraction(Numbers{}, 0.5); }

// error: a communicator lacks send(Dev&, Tensor<Dev>, int, CallSite) or recv(Dev&, View<Dev>, int, CallSite)
struct Alone {
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 1; }
  [[nodiscard]] int send_capacity() const { return 1; }
  Event<Cpu> start(Cpu&, const Collective<Cpu>&) { return {}; }
  void send(Cpu&, const Tensor<Cpu>&, int, CallSite) {}
#ifdef GOOD
  void recv(Cpu&, View<Cpu>, int, CallSite) {}
#endif
  void barrier(CallSite) {}
  Alone split(int, int, CallSite) { return *this; }
  void abort(const std::string&) {}
  [[nodiscard]] std::string transport() const { return "nothing"; }
};
Comm<Cpu> world() { return Comm<Cpu>::of(Alone{}); }

// error: start_copy_to_host(from, bytes)
struct Board {
  static constexpr bool host_accessible = true;
  std::shared_ptr<std::byte> allocate(std::size_t) { return {}; }
  void copy_from_host(std::byte*, const std::byte*, std::size_t) {}
  void copy_to_host(std::byte*, const std::byte*, std::size_t) {}
#ifdef GOOD
  HostCopy start_copy_to_host(const std::byte*, std::size_t) { return {}; }
#endif
  void copy(std::byte*, const std::byte*, std::size_t) {}
  void fill_zero(std::byte*, std::size_t) {}
  void synchronize() {}
  [[nodiscard]] std::shared_ptr<Trace> trace() const { return nullptr; }
  [[nodiscard]] TraceMoment moment() const { return {}; }
  int scope(const auto&...) { return 0; }
};
static_assert(Device<Board>);

// error: a layer lacks: Tensor<Dev> backward(Dev&, Tensor<Dev> dy, Tape<Dev>&)
struct Same {
  Tensor<Cpu> forward(Cpu&, Tensor<Cpu> x, Tape<Cpu>&) { return x; }
#ifdef GOOD
  Tensor<Cpu> backward(Cpu&, Tensor<Cpu> dy, Tape<Cpu>&) { return dy; }
#endif
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Cpu>&) const { return in; }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
  void parameters(ParameterList<Cpu>&) const {}
};
void add(Model<Cpu>& model) { model.add("same", Same{}); }

// error: a loss lacks: std::vector<std::string> term_names() const
// error: a loss lacks: Tensor<Dev> backward(Dev&, ConstView<Dev> scales, Tape<Dev>&)
struct Measure {
#ifdef GOOD
  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
  Tensor<Cpu> backward(Cpu&, ConstView<Cpu>, Tape<Cpu>&) { return {}; }
#endif
  void forward(Cpu&, Tensor<Cpu>, Tape<Cpu>&, View<Cpu>) {}
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
  void parameters(ParameterList<Cpu>&) const {}
};
void measure(Model<Cpu>& model) { model.loss = Measure{}; }

// error: a reducer lacks ready(Range) or finish()
namespace own {
struct Nothing {};
struct Reducer {
  void ready(Range) {}
#ifdef GOOD
  void finish() {}
#endif
};
Reducer make_reducer(Cpu&, ParameterStore<Cpu>&, const Comm<Cpu>&, Nothing) { return {}; }
}  // namespace own
auto reducer(Cpu& dev, ParameterStore<Cpu>& store, const Comm<Cpu>& group) {
  return detail::any_reducer(dev, store, group, own::Nothing{});
}

// error: schedule.name
struct Idle {
#ifdef GOOD
  static constexpr const char* name = "idle";
#endif
  [[nodiscard]] std::vector<Action> actions(int, int, int, int) const { return {}; }
};
AnySchedule schedule() { return AnySchedule(Idle{}); }

// Without replay() no layer with a non-finite result could be found.
// error: model.replay(dev, step)
struct Own {
  Tensor<Cpu> forward_backward(Cpu&, const Step<Cpu>&) { return {}; }
  Tensor<Cpu> evaluate(Cpu&, const Step<Cpu>&) { return {}; }
#ifdef GOOD
  void replay(Cpu&, const Step<Cpu>&) {}
#endif
  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
  ParameterStore<Cpu>& store();
};
using Training = Trainer<Cpu, Own>;

// dhp's layers have a backward_onto that knows nothing of another backward, so deriving from them is an error.
// error: cannot derive from
#ifdef GOOD
struct Twice {
  Linear<Cpu> linear;
#else
struct Twice : Linear<Cpu> {
#endif
};

// Only accumulate() writes a gradient: with exact sums, any other write would be lost.
// error: could not convert
void backward(Cpu& dev, ParameterState<Cpu>& weight, const Tensor<Cpu>& dy) {
#ifdef GOOD
  weight.accumulate(
      dev, [&](View<Cpu> gradient, double beta) { column_sums(dev, dy.view(), gradient, beta); });
#else
  column_sums<Cpu>(dev, dy.view(), weight.gradient, 1.0);
#endif
}

// A model is described for the ranks that share its layers.
// error: no matching function for call to
void describe(Mesh<Cpu>& mesh) {
#ifdef GOOD
  ModelBuilder<Cpu> build(mesh);
#else
  ModelBuilder<Cpu> build;
#endif
  (void)Linear<Cpu>(build, "linear", {.in = 2, .out = 2});
}
