// StepModel predicts the time of a step and the memory of a rank in a layout. Layers cost FLOP, bytes and launches;
// collectives and messages cost latency and bandwidth; the pipeline's schedule and the exchange of gradient buckets are
// simulated.
#pragma once

#include <dhp/parallel/cut_layers.hpp>
#include <dhp/parallel/moves.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "cluster.hpp"
#include "model_work.hpp"
#include "state_bytes.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <ranges>
#include <tuple>

namespace examples {

/// How a training is laid out.
struct Layout {
  dhp::MeshShape mesh{};
  dhp::AnySchedule schedule = dhp::OneForwardOneBackward{};
  int chunks = 1;
  std::int64_t micro_batch = 1;
  int zero = 0;
  bool recompute = false;
};

/// Seconds of a step on the slowest stage. Communication that computation hides is not included.
struct StepTime {
  double compute = 0;       ///< passes of the layers
  double tensor = 0;        ///< collectives inside layers
  double waiting = 0;       ///< idle time of the pipeline
  double data = 0;          ///< exposed exchange of gradients and weights
  double update = 0;        ///< optimizer and the step's small collectives
  double shared = 0;        ///< slowdown by ranks on the same cores
  double memory_bytes = 0;  ///< of one rank, at least
  double idle_share = 0;    ///< mean over the stages
  double flop = 0;          ///< operations of the model over all ranks, without recomputation

  /// The parts of the time, each with its name.
  [[nodiscard]] std::array<std::pair<const char*, double>, 6> parts() const {
    return {{{"layers", compute},
             {"tensor axis", tensor},
             {"pipeline", waiting},
             {"data axis", data},
             {"update", update},
             {"shared cores", shared}}};
  }
  [[nodiscard]] double total() const { return compute + tensor + waiting + data + update + shared; }
  [[nodiscard]] double exposed_share() const { return (tensor + data) / total(); }
};

struct StepModelOptions {
  Cluster cluster{};
  dhp::DType products = dhp::DType::f32;  ///< type of matrix products
  double bucket_bytes = 25 << 20;
  std::int64_t samples = 0;  ///< samples of a step
  /// Counts the work of one rank with the layout's tensor and context axes and no other. Returns null if the model
  /// cannot be split that way.
  std::function<std::shared_ptr<const ModelWork>(const Layout&)> work{};
};

class StepModel {
 public:
  explicit StepModel(StepModelOptions options)
      : options_(std::move(options)), products_(options_.cluster.products(options_.products)) {}

  [[nodiscard]] const Cluster& cluster() const { return options_.cluster; }
  /// Returns why the first layout that had no pipeline could have none; empty if all had one.
  [[nodiscard]] const std::string& why_not() const { return why_not_; }

  /// Time of work without its communication.
  [[nodiscard]] double seconds(const Work& work) const {
    const auto& c = options_.cluster;
    const double flop = (work.flop - work.dropout_flop) / products_ +
                        work.dropout_flop / std::min(products_, c.flop_dropout);
    const double moved = work.product_bytes / c.bytes_per_s;
    // On CPUs the caches hide the reads of matrix products.
    return (c.cores > 0 ? std::max(flop, moved) : flop + moved) + work.bytes / c.bytes_per_s +
           work.launches * c.launch_s;
  }
  /// Time of `calls` all-reduces in which a rank sends `sent_bytes` in total. Neighbors in a group are `stride` ranks
  /// apart. All groups of a world of `world` ranks do this at the same time, and the slowest counts.
  [[nodiscard]] double exchange(double calls, double sent_bytes, int ranks, double stride,
                                int world) const {
    if (ranks == 1 || calls == 0) return 0;
    const auto& c = options_.cluster;
    const double extent = ranks * stride;
    // If the ends of groups are not also ends of hosts (or racks), some group is on two of them.
    const auto all_within = [&](double size) {
      return extent <= size && (world <= size || std::fmod(size, extent) == 0);
    };
    const bool on_hosts = all_within(c.devices);
    // Ranks on one host reduce among themselves first, then use their network links in parallel.
    const double here = extent > c.devices || on_hosts
                            ? std::clamp(std::floor(c.devices / stride), 1.0, 1.0 * ranks)
                            : 1;
    const double inside = calls * rounds(here) * c.device.latency_s;
    if (on_hosts) return inside + sent_bytes / c.device.bytes_per_s;
    const auto& link = all_within(c.devices * c.hosts) ? c.host : c.rack;
    return inside + calls * rounds(ranks / here) * link.latency_s +
           sent_bytes / std::min(c.device.bytes_per_s, here * link.bytes_per_s);
  }

  /// Returns nullopt if the model cannot be split that way, or a replica would have no micro-batch.
  [[nodiscard]] std::optional<StepTime> operator()(const Layout& layout) {
    const auto& mesh = layout.mesh;
    const auto& c = options_.cluster;
    const int share = share_of(layout);
    const auto counted = share > 0 ? options_.work(layout) : nullptr;
    if (counted == nullptr) return {};
    const auto& work = *counted;
    const auto& stages = staged(layout, share, work);
    if (stages.empty()) return {};
    const double here = std::min<double>(mesh.size(), c.devices);  // ranks of a host
    const bool sharded = layout.zero > 0;
    const int replicas = mesh.replicas(), rounds = layout.zero >= 2 ? share : 1;
    const double makespan = std::ranges::max(stages, {}, &Stage::end).end;
    StepTime slowest;
    double idle = 0, busy = 0;
    for (const auto& stage : stages) {
      StepTime time{.compute = stage.compute, .tensor = stage.tensor};
      time.waiting = std::max(0.0, stage.end - stage.compute - stage.tensor) + stage.tied;
      const double part = stage.parameters / std::max(work.parameters, 1.0);
      const auto [elements, calls] = sent_elements(stage, layout.zero, replicas);
      const double gradients = work.gradient_bytes / std::max(work.parameters, 1.0) * elements;
      const auto sent = [&](double bytes) {
        return exchange(sharded ? calls / 2 : calls, bytes, replicas, mesh.tensor, mesh.size());
      };
      const double summed = data_bytes(gradients, 0, replicas, sharded, 1);
      const double gathered =
          sharded ? data_bytes(0, elements * size_of(options_.products), replicas, 1, 1) : 0;
      const double summing = sent(summed), gathering = sharded ? sent(gathered) : 0;
      const auto [waits, gathers] = exposed(stage, layout.zero, rounds, summing, gathering);
      const double exchanging = rounds * summing + gathers * gathering;
      if (exchanging > 0) {
        time.data = waits;
        if (replicas * mesh.tensor > c.devices && c.cores > 0 && here >= c.cores)
          time.data += (1 - waits / exchanging) *
                       std::min(exchanging, tcp_s * (rounds * summed + gathers * gathered));
      }
      auto update = work.update;
      update.add(update, (sharded ? part / replicas : part) - 1);
      time.update = seconds(update) + small_calls(mesh);
      const auto state = state_bytes(work.weight_bytes * part, work.gradient_bytes * part,
                                     work.optimizer_bytes * part, replicas, layout.zero);
      time.memory_bytes =
          std::max(slowest.memory_bytes, state.sum() + stage.kept_bytes +
                                             (mesh.pipeline == 1 ? work.transient_bytes : 0));
      busy += time.compute + time.update;
      if (mesh.size() <= c.devices) busy += time.tensor + exchanging;  // cores copy within a host
      idle += std::max(0.0, 1 - (time.compute + time.tensor) / makespan);
      slowest.memory_bytes = time.memory_bytes;
      if (time.total() > slowest.total()) slowest = time;
    }
    // A step lasts at least as long as the host's cores need for the work of all its ranks.
    if (c.cores > 0) {
      const double of_host = busy / mesh.pipeline * here / c.cores;
      slowest.shared = std::max(0.0, of_host - slowest.total());
      slowest.memory_bytes *= here;
    }
    slowest.idle_share = idle / mesh.pipeline;
    slowest.flop = 3 * work.forward_flop() * mesh.tensor * mesh.context *
                   static_cast<double>(micro_batches(layout));
    return slowest;
  }
  /// Returns a lower bound of the seconds of all layouts with this mesh, micro-batch and recomputation; nullopt if none
  /// can run the model.
  [[nodiscard]] std::optional<double> at_least(const Layout& layout) const {
    const auto& mesh = layout.mesh;
    const auto& c = options_.cluster;
    const int share = share_of(layout);
    const auto work = share > 0 ? options_.work(layout) : nullptr;
    if (work == nullptr || mesh.pipeline > std::ssize(work->layers)) return {};
    double compute = 0, tensor = 0;
    double one_way = 0;  // of one micro-batch through all stages and back
    for (const auto& layer : work->layers) {
      const auto [forward, backward, there, back] = passes_of(layer, mesh);
      compute += share * (forward + backward);
      tensor += share * (there + back);
      one_way += forward + there + backward / 2 + back;
    }
    compute += seconds(work->update) / mesh.replicas();
    const double host =
        c.cores > 0 ? compute * std::min<double>(mesh.size(), c.devices) / c.cores : 0;
    const double rank = std::max(compute + tensor, one_way * mesh.pipeline);
    constexpr double rounding = 1 - 1e-9;
    return rounding * std::max(host / mesh.pipeline, rank / mesh.pipeline + small_calls(mesh));
  }

 private:
  /// Times of a layer in one micro-batch.
  struct Passes {
    double parameters = 0;  // without parameters that an earlier layer has
    int tied = -1;          // an earlier layer with some of its parameters; -1: none
    double forward = 0, backward = 0;
  };
  /// A pipeline stage, with times of all its micro-batches.
  struct Stage {
    double compute = 0, tensor = 0, end = 0;
    double tied = 0;  // time to sum gradients of parameters that other stages share
    double kept_bytes = 0;
    double parameters = 0;
    dhp::ParameterList<dhp::Meta> trained{};
    std::vector<Passes> layers{};
  };
  /// What the stages depend on: the mesh, the schedule and its chunks, the micro-batch, and recomputation.
  using Cut = std::tuple<int, int, int, int, std::string, int, std::int64_t, bool>;

  /// Core time of TCP for each byte that is both sent and received, measured on an AMD EPYC. It delays computation that
  /// overlaps with the exchange if a rank has no spare core, but not more than if nothing overlapped.
  static constexpr double tcp_s = 1.3e-9;

  [[nodiscard]] std::int64_t micro_batches(const Layout& layout) const {
    return std::max<std::int64_t>(options_.samples / layout.micro_batch, 1);
  }
  /// Returns the most micro-batches of a replica; 0 if one would have none.
  [[nodiscard]] int share_of(const Layout& layout) const {
    const auto all = micro_batches(layout);
    return all < layout.mesh.data ? 0
                                  : static_cast<int>(dhp::part_of(all, layout.mesh.data, 0).size());
  }
  /// Returns the seconds of a step's small collectives over all ranks.
  [[nodiscard]] double small_calls(const dhp::MeshShape& mesh) const {
    return exchange(6, 0, mesh.size(), 1, mesh.size());
  }
  /// Returns the seconds of a layer's forward and backward pass, and those of their calls on the tensor axis.
  [[nodiscard]] std::array<double, 4> passes_of(const LayerWork& layer,
                                                const dhp::MeshShape& mesh) const {
    const auto calls = [&](const Work& of) {
      return exchange(of.calls, of.sent_bytes, mesh.tensor * mesh.context, 1, mesh.size());
    };
    return {seconds(layer.forward), seconds(layer.backward), calls(layer.forward),
            calls(layer.backward)};
  }
  [[nodiscard]] static double rounds(double ranks) { return 2 * std::ceil(std::log2(ranks)); }

  [[nodiscard]] double bucket_bytes(const Stage& stage, int zero) const {
    const double part = std::max(4 * stage.parameters / 32, 1024.0 * 1024);
    return zero >= 2 ? std::min(options_.bucket_bytes, part) : options_.bucket_bytes;
  }
  /// Returns the elements of a stage's gradients as they are sent, and the number of buckets. ZeRO pads each bucket to
  /// whole pages of all replicas, so many replicas send much more than the gradients.
  [[nodiscard]] std::pair<double, double> sent_elements(const Stage& stage, int zero,
                                                        int replicas) const {
    if (zero == 0)
      return {stage.parameters, std::ceil(4 * stage.parameters / options_.bucket_bytes)};
    const auto lists = dhp::detail::bucket_lists(
        stage.trained,
        {static_cast<dhp::ZeroStage>(zero), static_cast<std::size_t>(options_.bucket_bytes)},
        size_of(dhp::accumulation_type(options_.products)));
    const auto page = dhp::detail::segment_tile * replicas;
    std::int64_t elements = 0;
    for (const auto& list : lists) {
      std::int64_t at = 0;
      for (const auto& each : list) at = dhp::detail::in_pages(at, *each).last;
      elements += (at + page - 1) / page * page;
    }
    return {static_cast<double>(elements), static_cast<double>(lists.size())};
  }
  /// Seconds that a replica waits for its exchange, and how often it gathers all weights. `summing` and `gathering` are
  /// the seconds of one sum of all gradients and of one gather of all weights. The link carries one bucket at a time,
  /// in the order of the stage's list. Few rounds are simulated; a further one takes the mean time of the last two.
  [[nodiscard]] std::pair<double, double> exposed(const Stage& stage, int zero, int rounds,
                                                  double summing, double gathering) const {
    using dhp::Action, dhp::detail::as_size, dhp::detail::MovedUnit;
    // A bucket's share of the parameters, and the times at which its weights are here and its gradients are summed.
    struct Bucket {
      double share = 0, here = 0, summed = 0;
    };
    std::vector<Bucket> buckets{{}};  // the last layers first
    std::vector<std::size_t> from_last(stage.layers.size());
    const double all = std::max(stage.parameters, 1.0), least = bucket_bytes(stage, zero) / 4 / all;
    double pass_s = 0;
    for (auto at = stage.layers.size(); at-- > 0;) {
      const auto& layer = stage.layers[at];
      if (buckets.back().share >= least) buckets.emplace_back();
      buckets.back().share += layer.parameters / all;
      from_last[at] = buckets.size() - 1;
      pass_s += layer.forward + layer.backward;
    }
    std::ranges::reverse(buckets);
    std::vector<MovedUnit> units(
        buckets.size(), {.reduced = zero >= 2 ? MovedUnit::Reduced::each : MovedUnit::Reduced::last,
                         .sharded = zero == 3});
    std::vector<std::vector<std::size_t>> used(stage.layers.size());
    const auto layers = static_cast<int>(stage.layers.size()), few = std::min(rounds, 3);
    for (int at = 0; at < layers; ++at)
      for (const int with : {at, stage.layers[as_size(at)].tied}) {
        if (with < 0) continue;
        const auto unit = buckets.size() - 1 - from_last[as_size(with)];
        units[unit].chunks.push_back(at);
        used[as_size(at)].push_back(unit);
      }
    auto list = dhp::all_stages(dhp::OneForwardOneBackward{}, 1, few, 1).front();
    list = with_moves(dhp::detail::by_layers(list, {0, layers}),
                      dhp::detail::MovePlan(layers, units), few, dhp::detail::Pass::training);

    double now = 0, link = 0, summed = 0, gathered = 0;
    if (zero == 1 || zero == 2) {
      for (auto& bucket : buckets) bucket.here = link += gathering * bucket.share;
      gathered = 1;
    }
    std::vector<std::pair<double, double>> ends;  // time and gathers at the end of each round
    for (const auto& [kind, at, round] : list)
      if (kind == Action::Kind::unshard) {
        auto& bucket = buckets[as_size(at)];
        bucket.here = link = std::max(link, now) + gathering * bucket.share;
        gathered += bucket.share;
      } else if (kind == Action::Kind::reduce) {
        auto& bucket = buckets[as_size(at)];
        bucket.summed = link = std::max(link, now) + summing * bucket.share;
        const double before = std::exchange(summed, link);
        if (zero >= 2) now = std::max(now, before);  // at most two buckets are in memory
      } else if (kind != Action::Kind::reshard) {
        const auto& layer = stage.layers[as_size(at)];
        const bool forward = kind == Action::Kind::forward;
        for (const auto unit : used[as_size(at)])
          now = std::max({now, buckets[unit].here, forward ? 0 : buckets[unit].summed});
        now += forward ? layer.forward : layer.backward;
        if (at == 0 && !forward) ends.emplace_back(now, gathered);
      }
    now = std::max(now, link) - few * pass_s;
    if (const int more = rounds - few; more > 0) {
      now += more * ((ends[2].first - ends[0].first) / 2 - pass_s);
      gathered += more * (ends[2].second - ends[0].second) / 2;
    }
    return {now, gathered};
  }

  /// Returns no stages if the model cannot be split into such a pipeline.
  [[nodiscard]] const std::vector<Stage>& staged(const Layout& layout, int micro_batches,
                                                 const ModelWork& work) {
    const auto& mesh = layout.mesh;
    const auto [known, fresh] = pipelines_.try_emplace(
        Cut{mesh.data, mesh.tensor, mesh.context, mesh.pipeline, layout.schedule.name(),
            layout.chunks, layout.micro_batch, layout.recompute});
    if (fresh) try {
        known->second = stages_of(layout, micro_batches, work);
      } catch (const dhp::Error& error) {
        if (why_not_.empty()) why_not_ = error.sentence();
      }
    return known->second;
  }
  [[nodiscard]] std::vector<Stage> stages_of(const Layout& layout, int micro_batches,
                                             const ModelWork& work) const {
    const auto& mesh = layout.mesh;
    const dhp::detail::Wiring wiring{mesh.pipeline, layout.chunks, layout.schedule.v_shaped()};
    const auto cuts = dhp::cut_layers(work.costs, static_cast<int>(wiring.parts()));
    std::vector<Stage> stages(dhp::detail::as_size(mesh.pipeline));
    // Elements of each parameter, and the first layer that has it.
    std::vector<std::map<const void*, std::pair<double, int>>> held(stages.size());
    std::vector<dhp::ActionCosts> costs;
    std::vector<double> kept;  // bytes by part
    double message = 0;
    for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
      const auto at = dhp::detail::as_size(wiring.stage_of(std::ssize(costs)));
      auto& stage = stages[at];
      auto& cost = costs.emplace_back(dhp::ActionCosts{0, 0, 0});
      kept.push_back(0);
      for (auto layer = cuts[part]; layer < cuts[part + 1]; ++layer) {
        const auto& of = work.layers[dhp::detail::as_size(layer)];
        const auto [forward, backward, there, back] = passes_of(of, mesh);
        stage.compute += micro_batches * (forward + backward);
        stage.tensor += micro_batches * (there + back);
        cost.forward += forward + there;
        cost.backward_input += backward / 2 + back;
        cost.backward_weight += backward / 2;
        kept.back() += of.kept_bytes;
        auto& passes = stage.layers.emplace_back(
            Passes{.forward = forward + there, .backward = backward + back});
        for (const auto& each : of.trained) {
          const auto place = static_cast<int>(stage.layers.size()) - 1;
          const auto elements = static_cast<double>(each->spec.local_shape().count());
          const auto [known, fresh] = held[at].try_emplace(each.get(), elements, place);
          if (fresh) passes.parameters += elements, stage.trained.push_back(each);
          else passes.tied = known->second.second;
        }
        stage.parameters += passes.parameters;
      }
      if (part + 2 < cuts.size()) {
        const auto sent = work.layers[dhp::detail::as_size(cuts[part + 1]) - 1].output_bytes;
        message = std::max(message, sent);
        kept.back() = std::max(0.0, kept.back() - sent);
      }
    }
    const double size = mesh.size();  // with two hosts or more, some neighbors are on two hosts
    const double bytes_each = work.gradient_bytes / work.parameters;
    std::map<const void*, int> holders;  // stages that have a parameter
    for (const auto& of_stage : held)
      for (const auto& [id, of] : of_stage) ++holders[id];
    for (std::size_t at = 0; at < stages.size(); ++at)
      for (const auto& [id, of] : held[at])
        if (const int ranks = holders[id]; ranks > 1)
          stages[at].tied += exchange(1, data_bytes(of.first * bytes_each, 0, ranks, 0, 1), ranks,
                                      size / ranks, mesh.size());
    const double hop = exchange(0.5, message, std::min(mesh.pipeline, 2), size / 2, mesh.size());
    const auto runs = simulated(layout, micro_batches, costs, kept, hop);
    for (std::size_t at = 0; at < stages.size(); ++at) {
      stages[at].end = runs[at].end;
      stages[at].kept_bytes = runs[at].kept_bytes;
    }
    return stages;
  }

  /// When a stage ends, in seconds, and the most bytes that its passes keep for their backward passes.
  struct StageRun {
    double end = 0, kept_bytes = 0;
  };
  /// Simulates few micro-batches and extrapolates to the others.
  [[nodiscard]] std::vector<StageRun> simulated(const Layout& layout, int micro_batches,
                                                const std::vector<dhp::ActionCosts>& costs,
                                                const std::vector<double>& kept, double hop) const {
    const int stages = layout.mesh.pipeline;
    const auto run = [&](int count) {
      const auto lists = dhp::all_stages(layout.schedule, stages, count, layout.chunks);
      const auto wiring = lists.wiring(layout.chunks);
      std::vector<StageRun> runs;
      for (const double end : dhp::simulate(lists, costs, hop).end) {
        const auto stage = static_cast<int>(runs.size());
        auto& most = runs.emplace_back(StageRun{end}).kept_bytes;
        double now = 0;
        for (const auto& action : lists[dhp::detail::as_size(stage)]) {
          if (action.kind == dhp::Action::Kind::backward_weight) continue;
          const auto bytes = kept[dhp::detail::as_size(wiring.part(stage, action))];
          now += action.kind == dhp::Action::Kind::forward ? bytes : -bytes;
          most = std::max(most, now);
        }
      }
      return runs;
    };
    const int few = 4 * stages + micro_batches % stages, more = few + stages;
    const bool is_fixed = layout.schedule.name().ends_with(".csv");
    if (is_fixed || micro_batches <= 2 * more) return run(micro_batches);
    auto runs = run(few);
    const auto longer = run(more);
    const double times = static_cast<double>(micro_batches - few) / stages;
    for (std::size_t at = 0; at < runs.size(); ++at) {
      runs[at].end += (longer[at].end - runs[at].end) * times;
      runs[at].kept_bytes += (longer[at].kept_bytes - runs[at].kept_bytes) * times;
    }
    return runs;
  }

  StepModelOptions options_;
  double products_;
  std::map<Cut, std::vector<Stage>> pipelines_;
  std::string why_not_{};
};

}  // namespace examples
