// Like train_bert, but a rank with LIES_AT=STEP in its environment flips one bit of one gradient in that step.
#include <examples/bert/model.hpp>
#include <examples/bert/vocabulary.hpp>
#include <examples/data/data.hpp>
#include <examples/run/training.hpp>

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
  return examples::run_training({.options = options.run,
                                 .met = met,
                                 .train = data.train,
                                 .held_out = data.held_out,
                                 .make_model =
                                     [&](dhp::ModelBuilder<Dev>& build) {
                                       auto model = examples::bert(build, config);
                                       model.add("liar", Liar(step));
                                       return model;
                                     },
                                 .plan_model = [&](dhp::ModelBuilder<dhp::Meta>& build,
                                                   bool) { return examples::bert(build, config); },
                                 .measures = [](const auto&) { return examples::Measures{}; },
                                 .forward_flop = [](const auto&) { return 0.0; }});
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = examples::parse_bert(argc, argv, false);
  return examples::run_trainer(parsed.options.run, parsed.exit_status,
                               [&](auto* met) { return train(parsed.options, met); });
}
