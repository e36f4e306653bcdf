// Reducers sum over replicas, and start all-reduces in one order, whichever gradient is ready first. On any device.
#pragma once

#include <dhp/nn/model_builder.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/parallel/reducer.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/gradient_sums.hpp>

namespace tests {

template <class Dev>
class ReducerCases {
 public:
  static constexpr int parameters = 6;

  static ParameterStore<Dev> make_store(Dev& dev, bool deterministic = false) {
    ModelBuilder<Dev> build(Comm<Dev>{});
    ParameterList<Dev> list;
    for (int at = 0; at < parameters; ++at)
      list.push_back(build.parameter({.name = std::to_string(at), .shape = {7 + 30 * at}}));
    return {dev, list, {.compute = DType::f64, .deterministic = deterministic}};
  }

  template <class Options>
  static void sums() {
    for (const bool deterministic : {false, true})
      for (const int replicas : {1, 2, 3, 4}) {
        CAPTURE(deterministic);
        CAPTURE(replicas);
        CHECK(sums_are_right(replicas, Options{}, deterministic));
        if constexpr (std::same_as<Options, Bucketed>)
          for (const std::size_t bytes : {std::size_t{1}, std::size_t{600}, std::size_t{2000}})
            CHECK(sums_are_right(replicas, Bucketed{.bytes = bytes}, deterministic));
      }
  }

  static void one_order() {
    auto dev = make_device<Dev>();
    auto store = make_store(dev);
    std::vector<const std::byte*> log;
    BucketedReducer<Dev> reducer(dev, store, Comm<Dev>::of(Recorder(log)), {.bytes = 1});
    REQUIRE(reducer.buckets() == parameters);
    std::vector<const std::byte*> expected;
    for (std::size_t at = parameters; at-- > 0;)
      expected.push_back(store.parameters()[at]->gradient.bytes());
    for (int step = 0; step < 10; ++step) {
      log.clear();
      for (const auto at : order_of(0, step)) reducer.ready(store.parameters()[at]->range);
      reducer.finish();
      CHECK(log == expected);
    }
  }

  static void early_start() {
    auto dev = make_device<Dev>();
    auto store = make_store(dev);
    std::vector<const std::byte*> log;
    {
      BucketedReducer<Dev> reducer(dev, store, Comm<Dev>::of(Recorder(log)), {.bytes = 1});
      reducer.ready(store.parameters()[5]->range);
      reducer.ready(store.parameters()[4]->range);
      reducer.ready(store.parameters()[2]->range);  // waits for parameter 3
    }                                               // all issued all-reduces are done
    CHECK(log == std::vector<const std::byte*>{store.parameters()[5]->gradient.bytes(),
                                               store.parameters()[4]->gradient.bytes()});
  }

  template <class Options>
  static void out_of_range() {
    for (const double bad : {1e6, HUGE_VAL, std::nan("")}) {
      std::vector<int> all_nan(3, 1);
      on_ranks_of<Dev>(3, [&](Dev& dev, Comm<Dev> world) {
        auto store = make_store(dev, true);
        auto reducer = make_reducer(dev, store, world, Options{});
        add_gradients(dev, store, world.rank());
        if (world.rank() == 1)
          store.parameters()[3]->accumulate(
              dev, [&](View<Dev> gradient, double) { fill(dev, gradient, bad); });
        for (const auto& parameter : store.parameters()) reducer.ready(parameter->range);
        reducer.finish();
        for (const auto& parameter : store.parameters())
          if (!std::isnan(widened(dev, parameter->gradient)[0]))
            all_nan[static_cast<std::size_t>(world.rank())] = 0;
      });
      CHECK(all_nan == std::vector<int>{1, 1, 1});
    }
  }

 private:
  static_assert(Reducer<detail::PlainReducer<Dev>>);
  static_assert(Reducer<BucketedReducer<Dev>>);
  static_assert(!Reducer<int>);

  // Replica r adds r + 1 + number of the parameter to each element.
  static void add_gradients(Dev& dev, ParameterStore<Dev>& store, int replica) {
    for (const auto& parameter : store.parameters())
      add_to_gradient(dev, *parameter, replica + 1 + parameter->index);
  }

  // An order of the parameters, different for each replica and step.
  static std::vector<std::size_t> order_of(int replica, int step) {
    std::vector<std::size_t> order(parameters);
    std::iota(order.begin(), order.end(), std::size_t{0});
    const RandomStream random{.seed = 1, .series = static_cast<std::uint32_t>(step)};
    for (std::size_t i = order.size(); i-- > 1;)
      std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1),
                                             static_cast<std::uint64_t>(replica) * 64 + i)]);
    return order;
  }

  template <class Options>
  static bool sums_are_right(int replicas, Options options, bool deterministic) {
    std::vector<int> correct(static_cast<std::size_t>(replicas), 1);
    on_ranks_of<Dev>(replicas, [&](Dev& dev, Comm<Dev> world) {
      auto store = make_store(dev, deterministic);
      auto reducer = make_reducer(dev, store, world, options);
      for (int step = 0; step < 4; ++step) {
        store.zero_gradients(dev);
        add_gradients(dev, store, world.rank());
        for (const auto at : order_of(world.rank(), step))
          reducer.ready(store.parameters()[at]->range);
        reducer.finish();
        for (const auto& parameter : store.parameters())
          for (const double each : widened(dev, parameter->gradient))
            if (each != replicas * (replicas + 1) / 2.0 + replicas * parameter->index)
              correct[static_cast<std::size_t>(world.rank())] = 0;
      }
    });
    return std::count(correct.begin(), correct.end(), 1) == replicas;
  }

  // A group of two ranks that reduces nothing. It records the address of each tensor to all-reduce.
  class Recorder {
   public:
    explicit Recorder(std::vector<const std::byte*>& log) : log_(&log) {}
    [[nodiscard]] int rank() const { return 0; }
    [[nodiscard]] int size() const { return 2; }
    [[nodiscard]] int send_capacity() const { return 1; }
    [[nodiscard]] std::string transport() const { return "a test"; }
    Event<Dev> start(Dev&, const Collective<Dev>& collective) {
      if (collective.call.kind == CallKind::all_reduce) log_->push_back(collective.in.bytes());
      return {};
    }
    void send(Dev&, Tensor<Dev>, int, CallSite) {}
    void recv(Dev&, View<Dev>, int, CallSite) {}
    void barrier(CallSite) {}
    [[nodiscard]] Recorder split(int, int, CallSite) { return *this; }
    void abort(const std::string& message) { throw Error(message); }

   private:
    std::vector<const std::byte*>* log_;
  };
};

}  // namespace tests
