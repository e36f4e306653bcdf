// The trainer on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/train/trainer.hpp>

TEST_CASE("trainer: what is not finite is named; skipped steps; loss scales; resumed runs") {
  TrainerCases<Cpu>::check_all();
}
