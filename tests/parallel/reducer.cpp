// Reducers on the Cpu, and the sizes of buckets, which the host computes on any device.
#include <dhp/cpu.hpp>
#include <tests/parallel/reducer.hpp>

TEST_CASE_TEMPLATE("reducers sum over replicas for any order of ready ranges", Options, Plain,
                   Bucketed) {
  ReducerCases<Cpu>::sums<Options>();
}
TEST_CASE("buckets start in one order for any order of ready ranges") {
  ReducerCases<Cpu>::one_order();
}
TEST_CASE("a bucket starts before the backward pass is over") { ReducerCases<Cpu>::early_start(); }

TEST_CASE("buckets have at least the requested bytes, except the first layers'") {
  Cpu dev;
  auto store = ReducerCases<Cpu>::make_store(dev);
  const auto buckets = [&](std::size_t bytes) {
    return BucketedReducer<Cpu>(dev, store, Comm<Cpu>(), {.bytes = bytes}).buckets();
  };
  CHECK(buckets(1) == 6);
  // Padded sizes in elements: 32 64 96 128 128 160.
  CHECK(buckets(160 * 8) == 4);  // 160 | 128 + 128 | 96 + 64 | 32
  CHECK(buckets(std::size_t{1} << 30) == 1);
}

TEST_CASE("finish() refuses a step with a range that is not ready") {
  Cpu dev;
  auto store = ReducerCases<Cpu>::make_store(dev);
  BucketedReducer<Cpu> reducer(dev, store, Comm<Cpu>(), {.bytes = 1});
  for (std::size_t at = 1; at < ReducerCases<Cpu>::parameters; ++at)
    reducer.ready(store.parameters()[at]->range);
  CHECK(message_of([&] { reducer.finish(); }) ==
        "reducer: finish() was called before bucket 5 of 6 was ready");
}

TEST_CASE_TEMPLATE("a reducer of whole gradients refuses replicas that share the store", Options,
                   Plain, Bucketed) {
  Cpu dev;
  ParameterStore<Cpu> shared(dev, {}, {.sharding = {ZeroStage::optimizer}}, {0, 2});
  CHECK(has(message_of([&] { (void)make_reducer(dev, shared, Comm<Cpu>(), Options{}); }),
            "was given a store that is sharded over replicas"));
}

TEST_CASE_TEMPLATE("an exact sum that overflows on one replica becomes NaN on all", Options, Plain,
                   Bucketed) {
  ReducerCases<Cpu>::out_of_range<Options>();
}
