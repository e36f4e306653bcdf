// The trainer on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/train/trainer.hpp>

TEST_CASE("trainer: names non-finite values, skips steps, scales losses and resumes runs") {
  TrainerCases<Cpu>::check_all();
}
