// Estimates one step of a layout, stage by stage, before anything is allocated: the times of a schedule, the bytes on
// each axis, the memory of a rank. The model is a list of equal layers. As in a transformer's block, each layer has two
// all-reduces of its output in each direction on the tensor axis, and keys and values of the output's size, which
// travel around the ring of the context axis.
#pragma once

#include <dhp/comm/collective.hpp>
#include <dhp/core/shape.hpp>
#include <dhp/parallel/cut_layers.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "../../../examples/plan/state_bytes.hpp"

#include <cstdint>
#include <vector>

namespace playground {

/// Bytes are of one micro-batch on one rank without tensor and context axes; times of one layer and one micro-batch.
struct Question {
  int data = 2;
  int tensor = 2;
  int pipeline = 4;
  int context = 1;
  int micro_batches = 16;  ///< of a step, over all replicas
  dhp::AnySchedule schedule = dhp::OneForwardOneBackward{};
  int chunks = 1;
  int zero = 0;  ///< ZeRO's stage, 0 to 3
  bool recompute = false;
  bool half = false;  ///< weights and activations of 16 bits
  int layers = 12;
  dhp::ActionCosts costs{1, 1, 1};
  double parameters = 7.1e6;  ///< of a layer
  double boundary = 1.6e6;    ///< the bytes that cross from one layer to the next
  double inside = 1.3e7;  ///< the bytes that a layer keeps beside its input for its backward pass

  /// visitor(name, value, least, most) for all numbers; the most is what the page draws.
  static void visit(auto& question, auto visitor) {
    auto& [data, tensor, pipeline, context, micro_batches, schedule, chunks, zero, recompute, half,
           layers, costs, parameters, boundary, inside] = question;
    visitor("data", data, 1, 4096);
    visitor("tensor", tensor, 1, 4096);
    visitor("pipeline", pipeline, 1, 64);
    visitor("context", context, 1, 4096);
    visitor("micro_batches", micro_batches, 1, 1e6);
    visitor("chunks", chunks, 1, 26);
    visitor("zero", zero, 0, 3);
    visitor("recompute", recompute, 0, 1);
    visitor("half", half, 0, 1);
    visitor("layers", layers, 1, 512);
    visitor("forward", costs.forward, 0, 1e9);
    visitor("backward_input", costs.backward_input, 0, 1e9);
    visitor("backward_weight", costs.backward_weight, 0, 1e9);
    visitor("parameters", parameters, 0, 1e15);
    visitor("boundary", boundary, 0, 1e15);
    visitor("inside", inside, 0, 1e15);
  }
};

/// Bytes of a rank with AdamW: two moments of 32 bits and, for 16-bit weights, a 32-bit copy of them.
struct Memory : examples::StateBytes {
  double activations = 0;
};

/// Bytes that a rank sends in a step.
struct Traffic {
  double data = 0;
  double tensor = 0;
  double pipeline = 0;
  double context = 0;
};

struct Stage {
  std::vector<dhp::Action> actions;
  std::vector<double> start, cost;  ///< of the actions
  double idle = 0;                  ///< share of the step
  int layers = 0;
  int in_flight = 0;      ///< most parts x micro-batches whose activations are held
  double parameters = 0;  ///< of the rank
  Memory memory;
  Traffic sent;
};

struct Answer {
  double makespan = 0;
  int max_messages = 0;  ///< on an edge
  std::vector<Stage> stages;
};

inline void check_question(const Question& q) {
  Question::visit(q, [](const char* name, double value, double least, double most) {
    dhp::check(value >= least && value <= most, name, " is ", least, " to ", most, ", not ", value);
  });
  dhp::check(q.micro_batches / q.data <= 256,
             "the page draws up to 256 micro-batches per replica; ", q.micro_batches, " over ",
             q.data, " replicas are more");
}

/// Throws the library's Error if there is no such step.
[[nodiscard]] inline Answer estimate(const Question& q) {
  check_question(q);
  const auto micro_batches = static_cast<int>(dhp::part_of(q.micro_batches, q.data, 0).size());
  const auto lists = dhp::all_stages(q.schedule, q.pipeline, micro_batches, q.chunks);
  const auto report = dhp::check_schedule(lists, q.chunks, micro_batches, 4);
  const auto wiring = lists.wiring(q.chunks);
  const auto cuts = dhp::cut_layers(std::vector<double>(static_cast<std::size_t>(q.layers), 1.0),
                                    static_cast<int>(wiring.parts()));
  const auto layers_of = [&](std::int64_t part) {
    const auto at = static_cast<std::size_t>(part);
    return static_cast<int>(cuts[at + 1] - cuts[at]);
  };
  std::vector<dhp::ActionCosts> costs;
  for (std::int64_t part = 0; part < wiring.parts(); ++part) {
    const double layers = double(layers_of(part)) / q.context;  // of whole samples
    // Recomputation repeats the forward pass before the backward pass.
    const double again = q.recompute ? q.costs.forward : 0;
    costs.push_back({layers * q.costs.forward, layers * (q.costs.backward_input + again),
                     layers * q.costs.backward_weight});
  }
  const auto times = dhp::simulate(lists, costs);

  Answer answer{times.makespan, report.max_messages, {}};
  // Bytes for a rank's rows: a layer's output, the tensors that it keeps inside, and its keys and values.
  const double boundary = q.boundary / q.context, inside = q.inside / q.tensor / q.context,
               keys = 2 * boundary / q.tensor;
  const double kept = boundary + (q.recompute ? 0 : inside);
  for (int s = 0; s < q.pipeline; ++s) {
    const auto at = static_cast<std::size_t>(s);
    Stage stage;
    stage.actions = lists[at];
    stage.start = times.start[at];
    stage.idle = times.idle_share[at];
    stage.in_flight = report.max_until_weight_gradient[at];
    int largest = 0;
    for (int chunk = 0; chunk < q.chunks; ++chunk) {
      const auto layers = layers_of(wiring.part(s, {dhp::Action::Kind::forward, chunk, 0}));
      stage.layers += layers;
      largest = std::max(largest, layers);
    }
    double passes = 0, backward = 0;  // of a layer, in both directions, and of these backward
    for (const auto& action : stage.actions) {
      const auto part = static_cast<std::size_t>(wiring.part(s, action));
      stage.cost.push_back(costs[part].time_of(action.kind));
      const auto target = wiring.target(s, action);
      if (target >= 0 && wiring.stage_of(target) != s)
        stage.sent.pipeline +=
            dhp::sent_bytes(dhp::CallKind::send, static_cast<std::int64_t>(boundary), q.pipeline);
      const bool forward = action.kind == dhp::Action::Kind::forward;
      if (action.kind == dhp::Action::Kind::backward_weight) continue;
      const int of_part = layers_of(static_cast<std::int64_t>(part));
      passes += of_part * (!forward && q.recompute ? 2 : 1);
      if (!forward) backward += of_part;
    }
    stage.parameters = q.parameters * stage.layers / q.tensor;
    const double weights = (q.half ? 2 : 4) * stage.parameters;
    stage.memory = {examples::state_bytes(weights, 4 * stage.parameters,
                                          (q.half ? 12 : 8) * stage.parameters, q.data * q.context,
                                          q.zero)};
    stage.memory.activations = stage.in_flight * largest * kept + (q.recompute ? inside : 0);
    stage.sent.tensor =
        2 * passes *
        dhp::sent_bytes(dhp::CallKind::all_reduce, static_cast<std::int64_t>(boundary), q.tensor);
    // Gradients of keys and values are 32-bit sums, and take one more step around the ring.
    if (q.context > 1)
      stage.sent.context =
          keys * ((q.context - 1) * passes + q.context * (q.half ? 2 : 1) * backward);
    stage.sent.data = examples::data_bytes(4 * stage.parameters, weights, q.data * q.context,
                                           q.zero, micro_batches);
    answer.stages.push_back(std::move(stage));
  }
  return answer;
}

}  // namespace playground
