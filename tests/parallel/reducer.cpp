// Reducers: the sum over replicas, whatever the order in which ranges become ready, and all-reduces
// that start in one order on every replica.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/parallel/reducer.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

using namespace dhp;
using namespace tests;

namespace {

static_assert(Reducer<PlainReducer<Cpu>>);
static_assert(Reducer<BucketedReducer<Cpu>>);
static_assert(!Reducer<int>);

constexpr int parameters = 6;

ParameterStore<Cpu> make_store(Cpu& dev, bool order_free = false) {
  Build<Cpu> build;
  ParameterList<Cpu> list;
  for (int at = 0; at < parameters; ++at)
    list.push_back(build.parameter({.name = std::to_string(at), .shape = {7 + 30 * at}}));
  return {dev, list, {.compute = DType::f64, .order_free = order_free}};
}

// Replica r adds r + 1 + number of the parameter to each element.
void add_gradients(Cpu& dev, ParameterStore<Cpu>& store, int replica) {
  for (const auto& parameter : store.parameters())
    parameter->accumulate(dev, [&](View<Cpu> gradient, double beta) {
      double* values = gradient.data<double>();
      for (std::int64_t i = 0; i < gradient.count(); ++i)
        values[i] = beta * values[i] + replica + 1 + parameter->index;
    });
}

// Each replica's own order, another one in each step.
std::vector<std::size_t> order_of(int replica, int step) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const RandomStream random{.seed = 1, .step = static_cast<std::uint32_t>(step)};
  for (std::size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i + 1),
                                           static_cast<std::uint64_t>(replica) * 64 + i)]);
  return order;
}

template <class Options>
bool sums_are_right(int replicas, Options options, bool order_free) {
  std::vector<int> right(static_cast<std::size_t>(replicas), 1);
  run_ranks(replicas,
            [&](Comm<Cpu> world) {
              Cpu dev;
              auto store = make_store(dev, order_free);
              auto reducer = make_reducer(dev, store, world, options);
              for (int step = 0; step < 4; ++step) {
                store.zero_gradients(dev);
                add_gradients(dev, store, world.rank());
                for (const auto at : order_of(world.rank(), step))
                  reducer.ready(store.parameters()[at]->range);
                reducer.finish();
                for (const auto& parameter : store.parameters())
                  for (std::int64_t i = 0; i < parameter->gradient.count(); ++i)
                    if (parameter->gradient.data<double>()[i] !=
                        replicas * (replicas + 1) / 2.0 + replicas * parameter->index)
                      right[static_cast<std::size_t>(world.rank())] = 0;
              }
            },
            {.timeout_s = 60});
  return std::count(right.begin(), right.end(), 1) == replicas;
}

// A group of two whose other member has nothing to add; it writes down what is reduced, by address.
class Recorder {
 public:
  explicit Recorder(std::vector<const std::byte*>& log) : log_(&log) {}
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 2; }
  [[nodiscard]] int send_capacity() const { return 1; }
  [[nodiscard]] std::string transport() const { return "a test"; }
  Event<Cpu> all_reduce(Cpu&, View<Cpu> buffer, Reduce, CallSite) {
    log_->push_back(buffer.bytes());
    return {};
  }
  Event<Cpu> reduce_scatter(Cpu&, ConstView<Cpu>, View<Cpu>, CallSite) { return {}; }
  Event<Cpu> all_gather(Cpu&, ConstView<Cpu>, View<Cpu>, CallSite) { return {}; }
  Event<Cpu> broadcast(Cpu&, View<Cpu>, int, CallSite) { return {}; }
  Event<Cpu> all_to_all(Cpu&, ConstView<Cpu>, View<Cpu>, CallSite) { return {}; }
  void send(Cpu&, Tensor<Cpu>, int, CallSite) {}
  void recv(Cpu&, View<Cpu>, int, CallSite) {}
  void barrier(CallSite) {}
  [[nodiscard]] Recorder split(int, int, CallSite) { return *this; }
  void abort(const std::string& message) { throw Error(message); }

 private:
  std::vector<const std::byte*>* log_;
};

}  // namespace

TEST_CASE_TEMPLATE("reducers sum over replicas, whatever is ready first", Options, Plain, Bucketed,
                   ReducerChoice) {
  for (const bool order_free : {false, true})
    for (const int replicas : {1, 2, 3, 4}) {
      CAPTURE(order_free);
      CAPTURE(replicas);
      CHECK(sums_are_right(replicas, Options{}, order_free));
      if constexpr (std::same_as<Options, Bucketed>)
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{600}, std::size_t{2000}})
          CHECK(sums_are_right(replicas, Bucketed{.bytes = bytes}, order_free));
    }
}

TEST_CASE("buckets start in one order, whatever is ready first") {
  Cpu dev;
  auto store = make_store(dev);
  std::vector<const std::byte*> log;
  BucketedReducer<Cpu> reducer(dev, store, Comm<Cpu>::of(Recorder(log)), {.bytes = 1});
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

TEST_CASE("a bucket starts before the backward pass is over") {
  Cpu dev;
  auto store = make_store(dev);
  std::vector<const std::byte*> log;
  {
    BucketedReducer<Cpu> reducer(dev, store, Comm<Cpu>::of(Recorder(log)), {.bytes = 1});
    reducer.ready(store.parameters()[5]->range);
    reducer.ready(store.parameters()[4]->range);
    reducer.ready(store.parameters()[2]->range);  // waits for the one before it
  }                                               // what was issued is done by now
  CHECK(log == std::vector<const std::byte*>{store.parameters()[5]->gradient.bytes(),
                                             store.parameters()[4]->gradient.bytes()});
}

TEST_CASE("buckets have at least the bytes asked for, but for the first layers") {
  Cpu dev;
  auto store = make_store(dev);
  const auto buckets = [&](std::size_t bytes) {
    return BucketedReducer<Cpu>(dev, store, Comm<Cpu>(), {.bytes = bytes}).buckets();
  };
  CHECK(buckets(1) == 6);
  // Padded sizes in elements: 32 64 96 128 128 160.
  CHECK(buckets(160 * 8) == 4);  // 160 | 128 + 128 | 96 + 64 | 32
  CHECK(buckets(std::size_t{1} << 30) == 1);
}

TEST_CASE("finish() refuses to end a step in which something was not ready") {
  Cpu dev;
  auto store = make_store(dev);
  BucketedReducer<Cpu> reducer(dev, store, Comm<Cpu>(), {.bytes = 1});
  for (std::size_t at = 1; at < parameters; ++at) reducer.ready(store.parameters()[at]->range);
  CHECK(message_of([&] { reducer.finish(); }) ==
        "reducer: finish() was called before bucket 5 of 6 was ready");
}

TEST_CASE_TEMPLATE("a sum that left its range on one replica is NaN on all", Options, Plain,
                   Bucketed, ReducerChoice) {
  for (const double bad : {1e6, HUGE_VAL, std::nan("")}) {
    std::vector<int> all_nan(3, 1);
    run_ranks(3,
              [&](Comm<Cpu> world) {
                Cpu dev;
                auto store = make_store(dev, true);
                auto reducer = make_reducer(dev, store, world, Options{});
                add_gradients(dev, store, world.rank());
                if (world.rank() == 1)
                  store.parameters()[3]->accumulate(
                      dev, [&](View<Cpu> gradient, double) { fill(dev, gradient, bad); });
                for (const auto& parameter : store.parameters()) reducer.ready(parameter->range);
                reducer.finish();
                for (const auto& parameter : store.parameters())
                  if (!std::isnan(parameter->gradient.data<double>()[0]))
                    all_nan[static_cast<std::size_t>(world.rank())] = 0;
              },
              {.timeout_s = 60});
    CHECK(all_nan == std::vector<int>{1, 1, 1});
  }
}
