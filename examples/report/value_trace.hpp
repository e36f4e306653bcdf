// ValueTrace: fingerprints of each layer's results in training, for --trace-values. If two runs should compute the same
// bits, their first difference shows where one goes wrong (dhp_compare).
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/nn/loss.hpp>

#include "traced_value.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// The values of one rank. They do not change the computation, but each layer's results are copied to the host.
template <class Dev>
class ValueTrace {
 public:
  explicit ValueTrace(int tensor_rank) : tensor_rank_(tensor_rank) {}

  /// Returns the same model, whose layers record their values here, so this object must outlive it.
  [[nodiscard]] dhp::Model<Dev> traced(dhp::Model<Dev> model) {
    int at = 0;
    for (auto& layer : model.layers) {
      const auto name = layer.name();
      layer = dhp::AnyLayer<Dev>(name, Layer{std::move(layer), {this, name, at++}});
    }
    model.loss = dhp::AnyLoss<Dev>(Loss{std::move(model.loss), {this, "loss", at}});
    return model;
  }
  /// Sets whether the next step records its values.
  void takes(bool yes) { takes_ = yes; }
  /// Returns all values of all ranks since the last call, as lines of a file, on every rank. Collective.
  [[nodiscard]] std::string lines(Dev& dev, dhp::Comm<Dev>& world, std::int64_t step) {
    std::vector<TracedValue> own, all;
    for (auto& [key, value] : std::exchange(values_, {})) {
      value.step = step;
      own.push_back(std::move(value));
    }
    for (const auto& theirs : dhp::detail::gather_values(dev, world, own))
      all.insert(all.end(), theirs.begin(), theirs.end());
    std::ranges::sort(all, {}, &TracedValue::order);
    std::string text;
    for (const auto& value : all) text += value.to_json().dump() + "\n";
    return text;
  }

 private:
  /// Where a layer records its values.
  struct Place {
    ValueTrace* trace;
    std::string name;
    int layer;
    void take(Dev& dev, const dhp::Tensor<Dev>& value, bool gradient,
              const dhp::Tape<Dev>& tape) const {
      if (value.count() > 0 && tape.context().training() && trace->takes_)
        trace->take(dev, value,
                    {.micro_batch = tape.batch().index,
                     .layer = layer,
                     .name = name,
                     .gradient = gradient});
    }
  };
  struct Layer : dhp::AnyLayer<Dev> {
    Place place;
    dhp::Tensor<Dev> forward(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape) {
      auto y = dhp::AnyLayer<Dev>::forward(dev, std::move(x), tape);
      place.take(dev, y, false, tape);
      return y;
    }
    dhp::Tensor<Dev> backward(Dev& dev, dhp::Tensor<Dev> dy, dhp::Tape<Dev>& tape) {
      auto dx = dhp::AnyLayer<Dev>::backward(dev, std::move(dy), tape);
      place.take(dev, dx, true, tape);
      return dx;
    }
    void backward_onto() = delete;  // it would include other layers' gradients
  };
  struct Loss : dhp::AnyLoss<Dev> {
    Place place;
    dhp::Tensor<Dev> backward(Dev& dev, dhp::ConstView<Dev> scales, dhp::Tape<Dev>& tape) {
      auto dx = dhp::AnyLoss<Dev>::backward(dev, scales, tape);
      place.take(dev, dx, true, tape);
      return dx;
    }
  };

  /// Records the first of a layer's equal passes: with --recompute, forward runs twice.
  void take(Dev& dev, const dhp::Tensor<Dev>& tensor, TracedValue value) {
    value.tensor_rank = tensor_rank_;
    value.shape = dhp::concat(tensor.shape());
    const auto copy = dev.start_copy_to_host(tensor.view().bytes(), tensor.size_bytes());
    const auto bytes = copy.template wait<std::byte>();
    value.fingerprint =
        dhp::detail::fnv1a_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    dhp::Tensor<Dev> wide(dev, dhp::DType::f64, tensor.shape());
    cast(dev, tensor.view(), wide.mut());
    double squares = 0;
    for (const double element : wide.template to_host<double>(dev)) squares += element * element;
    value.root_mean_square = std::sqrt(squares / static_cast<double>(tensor.count()));
    values_.emplace(value.order(), std::move(value));
  }

  int tensor_rank_;
  bool takes_ = true;
  std::map<TracedValue::Order, TracedValue> values_;
};

}  // namespace examples
