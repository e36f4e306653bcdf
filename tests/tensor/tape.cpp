// The tape is a stack; weight gradients run at once or later; a batch names missing side inputs.
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tape.hpp>
#include <tests/support/tensors.hpp>

namespace {

Tensor<Cpu> number(Cpu& dev, double value) {
  return Tensor<Cpu>::from_host(dev, {1}, std::vector<double>{value});
}
double value_of(const Tensor<Cpu>& tensor) { return *tensor.view().data<double>(); }

TEST_CASE("tape: pops reverse the pushes, and a pop too many is refused") {
  Cpu dev;
  Tape<Cpu> tape({});
  tape.push(number(dev, 1));
  tape.push(number(dev, 2));
  tape.push_shape({3, 4});
  CHECK(tape.size_bytes() == 16);
  CHECK(value_of(tape.pop()) == 2);
  CHECK(!tape.empty());
  CHECK(tape.pop_shape() == Shape{3, 4});
  CHECK(value_of(tape.pop()) == 1);
  CHECK(tape.empty());
  CHECK(message_of([&] { (void)tape.pop(); }) ==
        "a layer pops more from the tape in its backward pass than its forward pass pushed");
  CHECK(message_of([&] { (void)tape.pop_shape(); }) ==
        "a layer pops more from the tape in its backward pass than its forward pass pushed");
}

TEST_CASE("tape: in evaluation it keeps nothing") {
  Cpu dev;
  Tape<Cpu> tape({.mode = StepContext::Mode::eval});
  CHECK(!tape.keeps());
  tape.push(number(dev, 1));
  tape.push_shape({1});
  CHECK(tape.empty());
}

TEST_CASE("tape: a weight gradient runs at once or deferred, once, and releases its tensors") {
  Cpu dev;
  Tape<Cpu> tape({});
  int runs = 0;
  tape.weight_gradient(dev, [&](Cpu&) { ++runs; });
  CHECK(runs == 1);

  auto x = number(dev, 5);
  double seen = 0;
  {
    std::vector<detail::DeferredGradient<Cpu>> later;
    tape.defer_to(&later);
    tape.weight_gradient(dev, [&seen, shared = x.share()](Cpu&) { seen = value_of(shared); });
    // A nested tape also defers its work.
    auto inner = tape.nested(true, true);
    inner.weight_gradient(dev, [&](Cpu&) { ++runs; });
    REQUIRE(later.size() == 2);
    CHECK(seen == 0);
    CHECK(!x.unique());
    for (auto& work : later) work(dev);
    CHECK(seen == 5);
    CHECK(runs == 2);
    CHECK(x.unique());  // although the list still exists
    CHECK(message_of([&] { later[1](dev); }) == "a deferred weight gradient runs only once");
    CHECK(runs == 2);
    // Work that never runs also releases its tensors.
    tape.weight_gradient(dev, [shared = x.share()](Cpu&) {});
    CHECK(!x.unique());
  }
  CHECK(x.unique());
  tape.defer_to(nullptr);
  tape.weight_gradient(dev, [&](Cpu&) { ++runs; });
  CHECK(runs == 3);
}

TEST_CASE("tape: a nested one has the same step, and its own stack") {
  Cpu dev;
  Tape<Cpu> tape({.seed = 4, .step = 9});
  auto again = tape.nested(true, true);
  CHECK(again.recomputing());
  CHECK(again.context().random(3).seed == 4);
  CHECK(again.context().random(3).series == 8);
  CHECK(!tape.nested(true, false).recomputing());
  CHECK(again.nested(true, false).recomputing());  // a nested pass of it also recomputes
  again.push(number(dev, 1));
  CHECK(tape.empty());
  CHECK(!tape.nested(false, false).keeps());
}

TEST_CASE("micro-batch: missing inputs and counts are named") {
  Cpu dev;
  MicroBatch<Cpu> batch;
  batch.side.emplace_back("labels", number(dev, 3));
  batch.counts = {{"samples", 8}};
  CHECK(batch.has("labels"));
  CHECK(value_of(batch.at("labels")) == 3);
  CHECK(batch.count_of("samples") == 8);
  CHECK(message_of([&] { (void)batch.at("offsets"); }) ==
        "the batch has no side input \"offsets\"; its loader must provide it for this model");
  CHECK(message_of([&] { (void)batch.count_of("tokens"); }) ==
        "the batch does not say how much the loss term \"tokens\" counts; its loader must provide "
        "this in MicroBatch::counts");
  const Tape<Cpu> without({});
  CHECK(message_of([&] { (void)without.batch(); }) ==
        "this layer reads side inputs, but the tape has no batch");
}

}  // namespace
