// GlobalLoss on the Cpu, and the checks of its sums on the host.
#include <dhp/cpu.hpp>
#include <tests/nn/loss.hpp>

TEST_CASE("global loss: has the same bits in every layout") { GlobalLossCases<Cpu>::layouts(); }

TEST_CASE("global loss: the first non-finite micro-batch is found; no micro-batches are accepted") {
  std::vector<double> entries;
  for (std::int64_t index = 0; index < 3; ++index) {
    const auto row = loss_of(index);
    entries.insert(entries.end(), row.begin(), row.end());
  }
  auto good = dhp::detail::sum_losses(entries, 2);
  good += good;
  CHECK(good.first_bad_micro_batch == -1);
  entries[2 * 8] = std::numeric_limits<double>::infinity();
  entries[1 * 8 + 4] = std::numeric_limits<double>::quiet_NaN();
  CHECK(dhp::detail::sum_losses(entries, 2).first_bad_micro_batch == 1);

  GlobalLoss total;
  for (int pass = 0; pass < 2; ++pass) total += dhp::detail::sum_losses(entries, 2);
  CHECK(total.terms[1].count == 2 * 6);
  CHECK(total.micro_batches == 6);
  CHECK(total.first_bad_micro_batch == 1);
  CHECK(message_of([&] { total += dhp::detail::sum_losses({}, 1); }) ==
        "losses of 2 and 1 terms cannot be added; both need the same terms");

  const auto none = dhp::detail::sum_losses({}, 2);
  CHECK(none.micro_batches == 0);
  CHECK(none.value() == 0);
}
