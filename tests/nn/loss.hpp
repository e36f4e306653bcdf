// GlobalLoss adds the micro-batches in their order, on whichever ranks they were computed. On any device.
#pragma once

#include <dhp/nn/loss.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

/// The two terms of micro-batch `index`. The total of the sums depends on the order of additions.
inline std::vector<double> loss_of(std::int64_t index) {
  const double sums[] = {1e16, 1.0, -1e16, 3.5, 0.1};
  const auto k = static_cast<double>(index);
  return {sums[index], k + 1, k, k + 1, 0.1 * k, 2, 0, 0};
}

template <class Dev>
class GlobalLossCases {
 public:
  static void layouts() {
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

 private:
  static GlobalLoss loss_on(const MeshShape& shape, std::int64_t micro_batches) {
    GlobalLoss found;
    on_ranks_of<Dev>(shape.size(), [&](Dev& dev, Comm<Dev> world) {
      Mesh<Dev> mesh(std::move(world), shape);
      const auto part = part_of(micro_batches, mesh.data().size(), mesh.data().rank());
      // Only the last stage holds the loss; micro-batches may be in any order.
      std::vector<MicroBatch<Dev>> batches;
      std::vector<double> entries;
      for (auto index = part.last; index-- > part.first;) {
        batches.emplace_back().index = index;
        auto row = loss_of(index);
        if (mesh.pipeline_index() != shape.pipeline - 1) row.assign(row.size(), 0.0);
        entries.insert(entries.end(), row.begin(), row.end());
      }
      const auto all = dhp::detail::gather_losses<Dev>(
          dev, mesh, Tensor<Dev>::from_host(dev, {part.size(), 2, loss_fields}, entries), batches,
          micro_batches);
      const auto loss = dhp::detail::sum_losses(widened(dev, all), 2);
      if (mesh.world().rank() == 0) found = loss;
    });
    return found;
  }
};

}  // namespace tests
