// StepRecorder: if the device can record work, a step with the previous step's shapes is recorded once and then
// replayed. The host then need not issue hundreds of kernels. The recorded step reads its inputs from fixed slots; each
// step's inputs are copied there.
#pragma once

#include <dhp/parallel/trainable.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace dhp::detail {
/// A device that can record work, such as Cuda, by record(body) and run(graph).
template <class Dev>
concept RecordingDevice = requires(Dev& dev, const typename Dev::Graph& graph) {
  dev.run(graph);
  { dev.recording() } -> std::same_as<bool>;
};

enum class Recording {
  none,
  where_alike,  ///< records a step with the previous step's shapes
  promised,     ///< the caller promises equal shapes on all ranks, which then record the same steps
};

/// For devices that cannot record: runs every step.
template <class Dev>
class StepRecorder {
 public:
  /// work(step) returns the losses of the step.
  Tensor<Dev> run(Dev&, const Step<Dev>& step, Recording, auto&& work) { return work(step); }
  /// Returns whether the last step was replayed.
  [[nodiscard]] bool replayed() const { return false; }
};

template <RecordingDevice Dev>
class StepRecorder<Dev> {
 public:
  Tensor<Dev> run(Dev& dev, const Step<Dev>& step, Recording how, auto&& work) {
    replayed_ = false;
    if (how == Recording::none) return work(step);
    auto signature = signature_of(step);
    const bool promised = how == Recording::promised;
    check(!promised || signature_.empty() || signature == signature_, "step ", step.context.step,
          ": its inputs have other shapes than those of the steps before, but same_shapes promises "
          "equal ones, for recording; give this step without same_shapes, or do not record");
    if (!graph_) {
      // The first step is not recorded: it loads kernels and chooses plans.
      if (signature != signature_ || (step.batches.empty() && !promised)) {
        signature_ = std::move(signature);
        return work(step);
      }
      make_slots(dev, step);
      auto from_slots = step;
      from_slots.batches = slots_;
      graph_ = dev.record([&] { losses_ = work(from_slots); });
    } else if (signature != signature_) {
      return work(step);  // a step of other shapes, such as a short last one
    }
    for (std::size_t at = 0; at < slots_.size(); ++at) fill_slot(dev, step.batches[at], slots_[at]);
    dev.run(graph_);
    replayed_ = true;
    return losses_.share();
  }
  [[nodiscard]] bool replayed() const { return replayed_; }

 private:
  /// Returns all numbers on which a recorded step depends, except the values of its inputs.
  static std::vector<std::int64_t> signature_of(const Step<Dev>& step) {
    std::vector<std::int64_t> signature{step.micro_batches};
    const auto add = [&](const Tensor<Dev>& tensor) {
      signature.push_back(static_cast<std::int64_t>(tensor.dtype()));
      signature.push_back(tensor.shape().rank());
      signature.insert(signature.end(), tensor.shape().begin(), tensor.shape().end());
    };
    for (const auto& batch : step.batches) {
      signature.insert(signature.end(),
                       {batch.index, batch.first_sample, batch.samples, std::ssize(batch.side)});
      add(batch.input);
      for (const auto& [name, tensor] : batch.side) add(tensor);
    }
    return signature;
  }
  void make_slots(Dev& dev, const Step<Dev>& step) {
    slots_.clear();
    const auto replace = [&](Tensor<Dev>& tensor) {
      tensor = tensor.empty() ? Tensor<Dev>() : Tensor<Dev>(dev, tensor.dtype(), tensor.shape());
    };
    for (const auto& batch : step.batches) {
      auto& slot = slots_.emplace_back(batch.share());
      replace(slot.input);
      for (auto& [name, tensor] : slot.side) replace(tensor);
    }
  }
  static void fill_slot(Dev& dev, const MicroBatch<Dev>& batch, MicroBatch<Dev>& slot) {
    const auto copy = [&](const Tensor<Dev>& from, Tensor<Dev>& to) {
      if (!from.empty()) dev.copy(to.mut().bytes(), from.view().bytes(), from.size_bytes());
    };
    copy(batch.input, slot.input);
    for (std::size_t at = 0; at < slot.side.size(); ++at)
      copy(batch.side[at].second, slot.side[at].second);
  }

  std::vector<std::int64_t> signature_;
  std::vector<MicroBatch<Dev>> slots_;
  typename Dev::Graph graph_;
  bool replayed_ = false;
  Tensor<Dev> losses_;
};
}  // namespace dhp::detail
