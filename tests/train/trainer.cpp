// The trainer on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/train/trainer.hpp>

TEST_CASE("trainer: an infinite loss ends with step, rank, micro-batch and the first layer") {
  TrainerCases<Cpu>::bad_loss();
}
TEST_CASE("trainer: a loss that overflows behind finite outputs is told from a bad layer") {
  TrainerCases<Cpu>::overflow_of_the_loss();
}
TEST_CASE("trainer: a gradient that is not finite, behind a finite loss, is named with its layer") {
  TrainerCases<Cpu>::bad_gradient();
}
TEST_CASE("trainer: under a dynamic loss scale an overflow is a step without an update") {
  TrainerCases<Cpu>::skipped_step();
}
TEST_CASE("trainer: a gradient out of proportion is skipped, in a resumed run, too") {
  TrainerCases<Cpu>::skipped_spike();
}
TEST_CASE("trainer: a loss that stays bad at the least scale is not the scale's fault") {
  TrainerCases<Cpu>::bad_at_the_least_scale();
}
TEST_CASE("trainer: the loss scale changes neither the loss nor the norm nor the step") {
  TrainerCases<Cpu>::loss_scale_changes_nothing();
}
TEST_CASE("trainer: resumes with the step that comes next") { TrainerCases<Cpu>::resumed(); }
TEST_CASE("trainer: resumed between two changes of the loss scale, it grows at the same step") {
  TrainerCases<Cpu>::resumed_between_scales();
}
TEST_CASE("trainer: a dynamic loss scale begins anew after a run with a constant one") {
  TrainerCases<Cpu>::scale_after_a_constant_one();
}
TEST_CASE("trainer: after a failed step the next one names it, until a state is resumed") {
  TrainerCases<Cpu>::after_a_failed_step();
}
