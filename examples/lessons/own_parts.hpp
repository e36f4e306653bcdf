// The user-written parts of lesson 13: a layer, a loss, a batcher, an optimizer, a reducer and a schedule.
#pragma once

#include <dhp/dhp.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace own {

using namespace dhp;

/// y = x * gain, one gain per column.
class Gain : public ElementwiseLayer<Cpu> {
 public:
  Gain(ModelBuilder<Cpu>& build, const std::string& name, std::int64_t columns)
      : gain_(build.parameter({.name = name, .shape = {columns}, .init = constant(1)})) {}

  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    Tensor<Cpu> y(dev, x.dtype(), x.shape());
    multiply<double>(x, gain_->value, y.mut());
    tape.push(std::move(x));
    return y;
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>& tape) {
    Tensor<Cpu> x = tape.pop(), dx(dev, x.dtype(), x.shape());
    multiply<double>(dy, gain_->value, dx.mut());
    // Runs at once, or later if the schedule delays weight gradients.
    tape.weight_gradient(dev, [gain = gain_, x = std::move(x), dy = std::move(dy)](Cpu& later) {
      gain->accumulate(later, [&](View<Cpu> sum, double beta) {
        if (beta == 0) fill(later, sum, 0);
        for (std::int64_t at = 0; at < x.count(); ++at)
          sum.data<double>()[at % x.columns()] +=
              x.view().data<double>()[at] * dy.view().data<double>()[at];
      });
    });
    return dx;
  }
  void parameters(ParameterList<Cpu>& out) const { out.push_back(gain_); }

 private:
  template <class T>
  static void multiply(ConstView<Cpu> x, ConstView<Cpu> gain, View<Cpu> y) {
    for (std::int64_t at = 0; at < x.count(); ++at)
      y.data<T>()[at] = x.data<T>()[at] * gain.data<T>()[at % x.columns()];
  }
  Parameter<Cpu> gain_;
};

/// The sum of log cosh (x - target), which is like a square near 0 and like an absolute value far away.
struct LogCosh {
  [[nodiscard]] std::vector<std::string> term_names() const { return {"elements"}; }
  void forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape, View<Cpu> totals) {
    Tensor<Cpu> difference = clone(dev, x.view());
    axpy(dev, -1.0, tape.batch().at("targets").view(), difference.mut());
    fill(dev, totals, 0);
    auto* const fields = totals.data<double>();  // sum, count, and two fields for classifiers
    for (const double each : difference.to_host<double>(dev))
      fields[0] += std::log(std::cosh(each));
    fields[1] = static_cast<double>(x.count());
    tape.push(std::move(difference));
  }
  Tensor<Cpu> backward(Cpu&, ConstView<Cpu> scales, Tape<Cpu>& tape) {
    Tensor<Cpu> dx = tape.pop();
    auto* const each = dx.mut().data<double>();
    for (std::int64_t at = 0; at < dx.count(); ++at)
      each[at] = scales.data<double>()[0] * std::tanh(each[at]);
    return dx;
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Cpu>&) const {
    return 20 * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Cpu>&) const {}
};

/// Sample i is a point of the plane; its target lies on a wave.
struct Waves {
  [[nodiscard]] std::int64_t size() const { return 96; }
  [[nodiscard]] HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    std::vector<double> x, y;
    for (const auto index : indices) {
      x.insert(x.end(), {0.02 * static_cast<double>(index), 1});
      y.push_back(std::sin(0.06 * static_cast<double>(index)));
    }
    const auto n = std::ssize(indices);
    HostBatch result;
    result.input = HostArray({n, 2}, x);
    result.side.emplace_back("targets", HostArray({n, 1}, y));
    result.counts.emplace_back("elements", n);  // the loss counts elements under this name
    return result;
  }
};

/// Moves every weight by the learning rate against the sign of its gradient.
class SignDescent final : public Optimizer<Cpu> {
 public:
  explicit SignDescent(ParameterStore<Cpu>& store) : store_(store) {}
  void apply(Cpu& dev, ConstView<Cpu> state) override {
    const auto now = read_step_state<Cpu>(dev, state);
    if (!now.applies()) return;
    for (const auto& part : store_.held()) {  // with ZeRO a shard, else all
      const auto gradient = store_.gradients().slice(part.range.first, part.range.last);
      for (std::int64_t at = 0; at < part.range.size(); ++at)
        part.value.data<double>()[at] -= now.learning_rate * sign_of(gradient.data<double>()[at]);
    }
  }
  [[nodiscard]] std::string name() const override { return "sign-descent"; }
  std::vector<StateBuffer<Cpu>> state() override { return {}; }  // no state for checkpoints
  void values_changed(Cpu&) override {}

 private:
  static double sign_of(double value) { return value > 0 ? 1 : value < 0 ? -1 : 0; }
  ParameterStore<Cpu>& store_;
};

/// Sums each range as soon as it is ready. In replicas of one stage the ranges become ready in the same order.
class OneByOneReducer {
 public:
  OneByOneReducer(Cpu& dev, ParameterStore<Cpu>& store, Comm<Cpu> group)
      : dev_(dev), store_(store), group_(std::move(group)) {}
  void ready(Range range) {
    for (auto summand : store_.summands(range)) group_.all_reduce(dev_, summand).wait();
  }
  void finish() {
    all_reduce_overflow(dev_, store_, group_);
    store_.finalize_gradients(dev_, {0, store_.size()});
  }

 private:
  Cpu& dev_;
  ParameterStore<Cpu>& store_;
  Comm<Cpu> group_;
};
struct OneByOne {};
inline OneByOneReducer make_reducer(Cpu& dev, ParameterStore<Cpu>& store, Comm<Cpu> group,
                                    OneByOne) {
  return {dev, store, std::move(group)};
}

/// A schedule with one micro-batch at a time.
inline std::vector<Action> one_at_a_time(int, int, int micro_batches, int) {
  std::vector<Action> list;
  for (int m = 0; m < micro_batches; ++m) {
    list.push_back({Action::Kind::forward, 0, m});
    list.push_back({Action::Kind::backward, 0, m});
  }
  return list;
}

}  // namespace own
