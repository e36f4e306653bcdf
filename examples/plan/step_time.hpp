// StepModel: how long a step takes in a layout, part by part, what a rank holds, and why: layers by FLOP, bytes and
// launches, collectives and messages by latency and bandwidth, the pipeline by its schedule, gradients by buckets in
// the reducer's order. All that dhp plans asks it.
#pragma once

#include <dhp/parallel/cut_layers.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "cluster.hpp"
#include "model_work.hpp"
#include "state_bytes.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <tuple>

namespace examples {

/// How a training is laid out.
struct Layout {
  dhp::MeshShape mesh{};
  std::string schedule = "1f1b";
  int chunks = 1;
  std::int64_t micro_batch = 1;
  int zero = 0;
  bool recompute = false;
};

/// Seconds of a step, of the stage that decides; what other work hides is not in them.
struct StepTime {
  double compute = 0;  ///< of layers
  double tensor = 0;   ///< exchange inside layers
  double waiting = 0;  ///< for other stages and their messages
  double data = 0;     ///< exchange of gradients and weights that nothing hides
  double update = 0;
  double shared = 0;        ///< for cores that other ranks have
  double memory_bytes = 0;  ///< of a rank, about
  double idle_share = 0;    ///< of the schedule, of all stages
  double flop = 0;          ///< multiplications and additions that the model needs, of all ranks

  static constexpr std::array parts{"layers",    "tensor axis", "pipeline",
                                    "data axis", "update",      "shared cores"};
  [[nodiscard]] std::array<double, 6> seconds() const {
    return {compute, tensor, waiting, data, update, shared};
  }
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double part : seconds()) sum += part;
    return sum;
  }
  [[nodiscard]] double exposed_share() const { return (tensor + data) / total(); }
};

struct StepModelOptions {
  Cluster cluster{};
  std::function<dhp::AnySchedule(const std::string&)> schedule = dhp::parse_schedule;  ///< by name
  bool half = false;  ///< products are of 16 bits
  double bucket_bytes = 25 << 20;
  std::int64_t samples = 0;  ///< of a step
  /// Counts a mesh of these tensor and context axes and one rank on the others; null: the model cannot be cut so.
  std::function<std::shared_ptr<const ModelWork>(const Layout&)> work{};
};

class StepModel {
 public:
  explicit StepModel(StepModelOptions options) : options_(std::move(options)) {}

  [[nodiscard]] const Cluster& cluster() const { return options_.cluster; }

  /// Time of work without its communication.
  [[nodiscard]] double seconds(const Work& work) const {
    const auto& c = options_.cluster;
    const double products = options_.half ? c.flop_16 : c.flop_32;
    const double flop = (work.flop - work.dropout_flop) / products +
                        work.dropout_flop / std::min(products, c.flop_dropout);
    const double moved = work.product_bytes / c.bytes_per_s;
    // On cores the caches hide what products read.
    return (c.cores > 0 ? std::max(flop, moved) : flop + moved) + work.bytes / c.bytes_per_s +
           work.launches * c.launch_s;
  }
  /// Time of all-reduces in which a rank sends so many bytes, in a group of so many ranks whose neighbours are
  /// `stride` apart.
  [[nodiscard]] double exchange(double calls, double sent_bytes, int ranks, int stride) const {
    if (ranks == 1 || calls == 0) return 0;
    const auto& c = options_.cluster;
    const double extent = static_cast<double>(ranks) * stride;
    // The group's ranks on one host meet first, and use their links side by side.
    const double here = std::clamp(std::floor(c.devices / stride), 1.0, static_cast<double>(ranks));
    const double inside = calls * rounds(here) * c.device.latency_s;
    if (extent <= c.devices) return inside + sent_bytes / c.device.bytes_per_s;
    const auto& link = extent <= c.devices * c.hosts ? c.host : c.rack;
    return inside + calls * rounds(ranks / here) * link.latency_s +
           sent_bytes / std::min(c.device.bytes_per_s, here * link.bytes_per_s);
  }

  /// None where the model cannot be cut so, or a replica has nothing to do.
  [[nodiscard]] std::optional<StepTime> operator()(const Layout& layout) {
    const auto& mesh = layout.mesh;
    const auto micro_batches = std::max<std::int64_t>(options_.samples / layout.micro_batch, 1);
    if (micro_batches < mesh.data) return {};
    const auto share = dhp::part_of(micro_batches, mesh.data, 0).size();
    const auto* const pipeline = staged(layout, static_cast<int>(share));
    if (pipeline == nullptr) return {};
    const auto& work = *pipeline->work;
    StepTime slowest;
    double idle = 0, busy = 0;
    for (const auto& stage : pipeline->stages) {
      StepTime time;
      const int replicas = mesh.replicas();
      const double part = stage.parameters / work.parameters;
      const double cut = layout.zero > 0 ? part * work.in_pages / work.parameters : part;
      const auto moved = data_bytes(work.gradient_bytes * cut, work.weight_bytes * cut, replicas,
                                    layout.zero, static_cast<int>(share));
      const auto calls = std::ceil(4 * stage.parameters / options_.bucket_bytes) * moved.calls;
      const double exchanging = exchange(calls, moved.bytes, replicas, mesh.tensor);
      time.compute = stage.compute;
      time.tensor = stage.tensor;
      time.waiting = std::max(0.0, stage.end - stage.compute - stage.tensor) + stage.tied;
      time.data = layout.zero >= 2
                      ? std::max(exchanging - stage.compute * (layout.zero == 3 ? 1 : 2.0 / 3),
                                 exchanging / std::max(2 * calls, 1.0))
                      : exposed(stage, exchanging);
      auto update = work.update;
      update.add(update, (layout.zero > 0 ? part / replicas : part) - 1);
      time.update = seconds(update) + exchange(6, 0, mesh.size(), 1);
      const auto state = state_bytes(work.weight_bytes * part, work.gradient_bytes * part,
                                     work.optimizer_bytes * part, replicas, layout.zero);
      time.memory_bytes = state.sum() + stage.kept_bytes + work.transient_bytes;
      slowest.memory_bytes = std::max(slowest.memory_bytes, time.memory_bytes);
      busy += time.compute + time.update;
      if (mesh.size() <= options_.cluster.devices) busy += time.tensor + exchanging;  // by copies
      idle += std::max(0.0, 1 - (time.compute + time.tensor) / pipeline->makespan);
      if (time.total() > slowest.total()) {
        time.memory_bytes = slowest.memory_bytes;
        slowest = time;
      }
    }
    // Ranks on the cores of a host do no more in a second than these can.
    const auto& c = options_.cluster;
    if (c.cores > 0) {
      const double here = std::min<double>(mesh.size(), c.devices);
      const double of_host = busy / mesh.pipeline * here / c.cores;
      slowest.shared = std::max(0.0, of_host - slowest.total());
      slowest.memory_bytes *= here;
    }
    slowest.idle_share = idle / mesh.pipeline;
    slowest.flop =
        3 * work.forward_flop() * mesh.tensor * mesh.context * static_cast<double>(micro_batches);
    return slowest;
  }

 private:
  /// A stage of a pipeline, with times of all of its micro-batches.
  struct Stage {
    double compute = 0, tensor = 0, end = 0;
    double tied = 0;  // exchange of gradients that other stages have, too
    double parameters = 0, kept_bytes = 0;
    /// For each layer, the last one first: parameters, and seconds of the last backward pass that are left then.
    std::vector<std::pair<double, double>> ready{};
  };
  struct Pipeline {
    std::shared_ptr<const ModelWork> work{};
    double makespan = 0;
    std::vector<Stage> stages{};
  };
  using Cut = std::tuple<int, int, int, std::string, int, std::int64_t, bool>;

  [[nodiscard]] static double rounds(double ranks) { return 2 * std::ceil(std::log2(ranks)); }

  /// Buckets go one after the other, each when its layers are done; the rest of the backward pass hides them.
  [[nodiscard]] double exposed(const Stage& stage, double exchanging) const {
    double done = 0, waiting = 0, sent = 0;
    bool first = true;
    for (std::size_t at = 0; at < stage.ready.size(); ++at) {
      const auto& [parameters, left] = stage.ready[at];
      waiting += parameters;
      if (4 * waiting < options_.bucket_bytes && at + 1 < stage.ready.size()) continue;
      done = (first ? -left : std::max(done, -left)) +
             exchanging * waiting / std::max(stage.parameters, 1.0);
      first = false;
      sent += waiting, waiting = 0;
    }
    return std::max(0.0, done);
  }

  /// Null where there is no such pipeline.
  [[nodiscard]] const Pipeline* staged(const Layout& layout, int micro_batches) {
    const auto& mesh = layout.mesh;
    const auto [known, fresh] = pipelines_.try_emplace(
        Cut{mesh.tensor, mesh.context, mesh.pipeline, layout.schedule, layout.chunks,
            layout.micro_batch * 1'000'000 + micro_batches, layout.recompute});
    auto& made = known->second;
    if (fresh) try {
        made.work = options_.work(layout);
        if (made.work) stage(layout, micro_batches, made);
      } catch (const dhp::Error&) {
        made = {};
      }
    return made.stages.empty() ? nullptr : &made;
  }
  void stage(const Layout& layout, int micro_batches, Pipeline& made) const {
    const auto& mesh = layout.mesh;
    const auto& work = *made.work;
    const dhp::detail::Wiring wiring{mesh.pipeline, layout.chunks,
                                     options_.schedule(layout.schedule).v_shaped()};
    const auto cuts = dhp::cut_layers(work.costs, static_cast<int>(wiring.parts()));
    made.stages.resize(static_cast<std::size_t>(mesh.pipeline));
    std::vector<dhp::ActionCosts> costs;
    std::vector<std::map<const void*, double>> held(made.stages.size());
    const auto inside = [&](const Work& of) {
      return exchange(of.calls, of.sent_bytes, mesh.tensor * mesh.context, 1);
    };
    double message = 0;
    std::vector<double> kept(made.stages.size(), 0);
    for (std::int64_t part = 0; part < wiring.parts(); ++part) {
      const auto at = static_cast<std::size_t>(wiring.stage_of(part));
      auto& stage = made.stages[at];
      auto& cost = costs.emplace_back(dhp::ActionCosts{0, 0, 0});
      for (auto layer = cuts[static_cast<std::size_t>(part)];
           layer < cuts[static_cast<std::size_t>(part) + 1]; ++layer) {
        const auto& of = work.layers[static_cast<std::size_t>(layer)];
        const double forward = seconds(of.forward), backward = seconds(of.backward);
        const double exchanged = inside(of.forward) + inside(of.backward);
        stage.compute += micro_batches * (forward + backward);
        stage.tensor += micro_batches * exchanged;
        cost.forward += forward + inside(of.forward);
        cost.backward_input += backward / 2 + inside(of.backward);
        cost.backward_weight += backward / 2;
        kept[at] += of.kept_bytes / layout.chunks;
        double fresh = 0;
        for (const auto& [id, elements] : of.parameters)
          if (held[at].emplace(id, elements).second) fresh += elements;
        stage.parameters += fresh;
        stage.ready.insert(stage.ready.begin(), {fresh, backward + inside(of.backward)});
      }
      if (part + 1 < wiring.parts())
        message = std::max(
            message,
            work.layers[static_cast<std::size_t>(cuts[static_cast<std::size_t>(part) + 1]) - 1]
                .output_bytes);
    }
    for (auto& stage : made.stages) {
      double left = 0;  // seconds of the layers behind
      for (auto at = stage.ready.size(); at-- > 0;) {
        const double mine = stage.ready[at].second;
        stage.ready[at].second = left;
        left += mine;
      }
    }
    const int stride = mesh.size() / mesh.pipeline;
    const double bytes_each = work.gradient_bytes / work.parameters;
    for (std::size_t at = 0; at < held.size(); ++at)
      for (const auto& [id, elements] : held[at]) {
        const auto ranks = static_cast<int>(std::count_if(
            held.begin(), held.end(), [&](const auto& of) { return of.contains(id); }));
        made.stages[at].tied +=
            exchange(1, data_bytes(elements * bytes_each, 0, ranks, 0, 1).bytes, ranks, stride);
      }
    const double hop = exchange(0.5, message, std::min(mesh.pipeline, 2), stride);
    const auto times = simulated(layout, micro_batches, costs, hop);
    made.makespan = times.makespan;
    for (std::size_t at = 0; at < made.stages.size(); ++at) {
      made.stages[at].end = times.ends[at];
      made.stages[at].kept_bytes = kept[at] * times.in_flight[at];
    }
  }
  struct Times {
    double makespan = 0;
    std::vector<double> ends{}, in_flight{};
  };
  /// Simulates few micro-batches, and adds so much for each further one.
  [[nodiscard]] Times simulated(const Layout& layout, int micro_batches,
                                const std::vector<dhp::ActionCosts>& costs, double hop) const {
    const int stages = layout.mesh.pipeline;
    const int few = 4 * stages + micro_batches % stages, more = few + stages;
    const auto run = [&](int count) {
      const auto lists =
          dhp::all_stages(options_.schedule(layout.schedule), stages, count, layout.chunks);
      const auto found = dhp::simulate(lists, costs, hop);
      Times times{found.makespan, {}, {}};
      for (std::size_t at = 0; at < lists.size(); ++at) {
        const auto part = lists.wiring(layout.chunks).part(static_cast<int>(at), lists[at].back());
        times.ends.push_back(found.start[at].back() +
                             costs[static_cast<std::size_t>(part)].of(lists[at].back().kind));
        int held = 0, most = 0;
        for (const auto& action : lists[at]) {
          held += action.kind == dhp::Action::Kind::forward ? 1 : 0;
          most = std::max(most, held);
          const bool last = action.kind == dhp::Action::Kind::backward ||
                            action.kind == dhp::Action::Kind::backward_weight;
          held -= last ? 1 : 0;
        }
        times.in_flight.push_back(most);
      }
      return times;
    };
    const bool is_fixed = layout.schedule.ends_with(".csv");
    if (is_fixed || micro_batches <= 2 * more) return run(micro_batches);
    auto first = run(few);
    const auto second = run(more);
    const double times = static_cast<double>(micro_batches - few) / stages;
    const auto extend = [&](double& from, double to) { from += (to - from) * times; };
    extend(first.makespan, second.makespan);
    for (std::size_t at = 0; at < first.ends.size(); ++at) {
      extend(first.ends[at], second.ends[at]);
      extend(first.in_flight[at], second.in_flight[at]);
    }
    return first;
  }

  StepModelOptions options_;
  std::map<Cut, Pipeline> pipelines_;
};

}  // namespace examples
