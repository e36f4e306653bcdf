// One list of micro-batches, summed in its order, wherever they were computed.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/train/global_loss.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace tests;

namespace {

/// Of micro-batch `index`; sums whose total depends on the order that they are added in.
MicroBatchLoss loss_of(std::int64_t index) {
  const double sums[] = {1e16, 1.0, -1e16, 3.5, 0.1};
  const auto n = index + 1;
  return {index,
          {{.sum = sums[index], .count = n, .correct = index, .correct_in_five = n},
           {.sum = 0.1 * static_cast<double>(index), .count = 2}}};
}

GlobalLoss loss_on(const MeshShape& shape, std::int64_t micro_batches) {
  GlobalLoss found;
  run_ranks(shape.size(), [&](Comm<Cpu> world) {
    Cpu dev({.threads = 1});
    Mesh<Cpu> mesh(std::move(world), shape);
    const auto part = part_of(micro_batches, mesh.data().size(), mesh.data().rank());
    std::vector<MicroBatchLoss> mine;
    // The loss is held by the last stage alone, and its micro-batches end in any order.
    if (mesh.pipeline_index() == shape.pipeline - 1)
      for (auto index = part.last; index-- > part.first;) mine.push_back(loss_of(index));
    auto loss = global_loss(dev, mesh, mine, part.size(), 2);
    if (mesh.world().rank() == 0) found = loss;
  });
  return found;
}

}  // namespace

TEST_CASE("global loss: the same bits in every layout") {
  const auto serial = loss_on({}, 5);
  CHECK(serial.micro_batches == 5);
  CHECK(serial.first_bad_micro_batch == -1);
  CHECK(serial.terms[0].sum == 1e16 + 1.0 - 1e16 + 3.5 + 0.1);
  CHECK(serial.terms[0].count == 15);
  CHECK(serial.terms[0].correct == 10);
  CHECK(serial.terms[0].correct_in_five == 15);
  CHECK(serial.terms[1].count == 10);
  CHECK(serial.value() == serial.terms[0].mean() + serial.terms[1].mean());
  for (const auto& shape : {MeshShape{.data = 2},
                            {.data = 3},
                            {.pipeline = 2},
                            {.data = 2, .tensor = 2, .pipeline = 2},
                            {.data = 7}}) {
    CAPTURE(to_text(shape));
    const auto found = loss_on(shape, 5);
    CHECK(found.micro_batches == 5);
    for (int term = 0; term < 2; ++term) {
      CHECK(found.terms[static_cast<std::size_t>(term)].sum ==
            serial.terms[static_cast<std::size_t>(term)].sum);
      CHECK(found.terms[static_cast<std::size_t>(term)].count ==
            serial.terms[static_cast<std::size_t>(term)].count);
    }
    CHECK(found.terms[0].correct == 10);
  }
}

TEST_CASE(
    "global loss: the first micro-batch that is not finite; none at all; one that is not there") {
  Cpu dev;
  Mesh<Cpu> mesh(Comm<Cpu>(), {});
  auto bad = loss_of(1);
  bad.terms[1].sum = std::numeric_limits<double>::quiet_NaN();
  auto worse = loss_of(2);
  worse.terms[0].sum = std::numeric_limits<double>::infinity();
  CHECK(global_loss(dev, mesh, {loss_of(0), worse, bad}, 3, 2).first_bad_micro_batch == 1);

  const auto none = global_loss(dev, mesh, {}, 0, 2);
  CHECK(none.micro_batches == 0);
  CHECK(none.value() == 0);
  CHECK(message_of([&] { (void)global_loss(dev, mesh, {loss_of(3)}, 3, 2); }) ==
        "micro-batch 3 is not among the 3 of this step");
}
