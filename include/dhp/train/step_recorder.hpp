// StepRecorder: on a device that can record work, a step whose shapes are those of the step before it is
// recorded once and then run as one piece, which spares the host the issue of hundreds of kernels. The
// recorded step reads its inputs from slots of its own, into which those of each step are copied.
#pragma once

#include <dhp/parallel/trainable.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace dhp {

/// A device that can record work, like Cuda: record(body) and run(graph).
template <class Dev>
concept RecordingDevice = requires(Dev& dev, const typename Dev::Graph& graph) {
  dev.run(graph);
  { dev.recording() } -> std::same_as<bool>;
};

enum class Recording {
  none,
  where_alike,  ///< a step whose inputs have the shapes of the step before
  promised,  ///< the caller knows that they do, and so do those of the other ranks, which record this step as well
};

/// For devices that cannot: every step is run as it is.
template <class Dev>
class StepRecorder {
 public:
  /// work(step) gives the losses of the step.
  template <class Work>
  Tensor<Dev> run(Dev&, const Step<Dev>& step, Recording, Work&& work) {
    return work(step);
  }
  /// Whether the last step was run as one piece.
  [[nodiscard]] bool recorded() const { return false; }
};

template <RecordingDevice Dev>
class StepRecorder<Dev> {
 public:
  template <class Work>
  Tensor<Dev> run(Dev& dev, const Step<Dev>& step, Recording how, Work&& work) {
    recorded_ = false;
    if (how == Recording::none) return work(step);
    auto kind = kind_of(step);
    const bool promised = how == Recording::promised;
    check(!promised || kind_.empty() || kind == kind_, "step ", step.context.step + std::int64_t{1},
          ": its inputs have other shapes than those of the steps before, with which all ranks "
          "were to record it; give it without same_shapes, or do without recording");
    if (!graph_) {
      // Once as it is: kernels are loaded, plans are chosen, shapes are seen to stay.
      if (kind != kind_ || (step.batches.empty() && !promised)) {
        kind_ = std::move(kind);
        return work(step);
      }
      make_slots(dev, step);
      auto from_slots = step;
      from_slots.batches = slots_;
      graph_ = dev.record([&] { losses_ = work(from_slots); });
    } else if (kind != kind_) {
      return work(step);  // a short step
    }
    for (std::size_t at = 0; at < slots_.size(); ++at) fill_slot(dev, step.batches[at], slots_[at]);
    dev.run(graph_);
    recorded_ = true;
    return losses_.share();
  }
  [[nodiscard]] bool recorded() const { return recorded_; }

 private:
  /// What a recorded step depends on beside the values of its inputs.
  static std::vector<std::int64_t> kind_of(const Step<Dev>& step) {
    std::vector<std::int64_t> kind{step.micro_batches};
    const auto add = [&](const Tensor<Dev>& tensor) {
      kind.push_back(static_cast<std::int64_t>(tensor.dtype()));
      kind.push_back(tensor.shape().rank());
      for (int dim = 0; dim < tensor.shape().rank(); ++dim) kind.push_back(tensor.shape()[dim]);
    };
    for (const auto& batch : step.batches) {
      kind.insert(kind.end(), {batch.index, batch.first_sample, batch.samples,
                               static_cast<std::int64_t>(batch.side.size())});
      add(batch.input);
      for (const auto& [name, tensor] : batch.side) add(tensor);
    }
    return kind;
  }
  void make_slots(Dev& dev, const Step<Dev>& step) {
    slots_.clear();
    const auto like = [&](const Tensor<Dev>& tensor) {
      return tensor.empty() ? Tensor<Dev>() : Tensor<Dev>(dev, tensor.dtype(), tensor.shape());
    };
    for (const auto& batch : step.batches) {
      auto& slot = slots_.emplace_back();
      slot.index = batch.index;
      slot.first_sample = batch.first_sample;
      slot.samples = batch.samples;
      slot.counts = batch.counts;
      slot.input = like(batch.input);
      for (const auto& [name, tensor] : batch.side) slot.side.emplace_back(name, like(tensor));
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

  std::vector<std::int64_t> kind_;
  std::vector<MicroBatch<Dev>> slots_;
  typename Dev::Graph graph_;
  bool recorded_ = false;
  Tensor<Dev> losses_;
};

}  // namespace dhp
