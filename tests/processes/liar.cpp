// Like train_bert, but a rank with LIES_AT=STEP in its environment flips one bit of one gradient in that step, and one
// with BUILDS_S=SECONDS takes so long to build each model after its first.
#include <examples/bert/model.hpp>
#include <examples/bert/vocabulary.hpp>
#include <examples/data/data.hpp>
#include <examples/run/training.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

namespace {

using examples::Dev;

/// The identity layer, except for the flipped bit.
class Liar : public dhp::ElementwiseLayer<Dev> {
 public:
  explicit Liar(std::shared_ptr<std::uint32_t> step) : step_(std::move(step)) {}
  dhp::Tensor<Dev> forward(Dev&, dhp::Tensor<Dev> x, dhp::Tape<Dev>&) { return x; }
  dhp::Tensor<Dev> backward(Dev& dev, dhp::Tensor<Dev> dy, dhp::Tape<Dev>& tape) {
    if (tape.context().step != *step_) return dy;
    *step_ = 0;
    auto dx = dhp::clone(dev, dy.view());
    dx.mut().bytes()[2] ^= std::byte{1};
    return dx;
  }

 private:
  std::shared_ptr<std::uint32_t> step_;  // counted from 1; 0: never
};

int train(const examples::BertOptions& options, examples::ConnectedRank* met) {
  const auto data = examples::load_text(options, false);
  const auto& config = data.bert.config;
  const char* const lies = std::getenv("LIES_AT");
  const auto step = std::make_shared<std::uint32_t>(lies == nullptr ? 0 : std::atoi(lies));
  examples::TrainingSetup setup{
      examples::planned_of(options.run, data, config, examples::bert<dhp::Meta>), met,
      data.held_out};
  const char* const seconds = std::getenv("BUILDS_S");
  bool builds_slowly = false;
  setup.make_model = [&](auto& build) {
    if (std::exchange(builds_slowly, seconds != nullptr)) ::sleep(std::atoi(seconds));
    auto model = examples::bert(build, config);
    model.add("liar", Liar(step));
    return model;
  };
  setup.measures = [](const auto&) { return examples::Measures{}; };
  setup.forward_flop = [](const auto&) { return 0.0; };
  return examples::run_training(setup);
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_trainer([&] { return examples::parse_bert(argc, argv, false); }, train);
}
