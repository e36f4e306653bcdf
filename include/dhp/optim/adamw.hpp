// The AdamW optimizer (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2).
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};

namespace detail {
[[nodiscard]] AdamUpdate adam_update(const auto& options) {
  const auto ok = [](double beta) { return beta >= 0 && beta < 1; };
  check(ok(options.beta1) && ok(options.beta2), "the betas of Adam lie from 0 to below 1, got ",
        options.beta1, " and ", options.beta2);
  check(options.epsilon >= 1e-37 && options.weight_decay >= 0,  // less is 0 in float
        "Adam's epsilon is 1e-37 or more and its weight decay 0 or more, got ", options.epsilon,
        " and ", options.weight_decay);
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay};
}
[[nodiscard]] inline std::string adam_settings(const AdamUpdate& update) {
  return concat("betas ", update.beta1, " and ", update.beta2, ", epsilon ", update.epsilon,
                ", weight decay ", update.weight_decay);
}
}  // namespace detail

template <class Dev>
class AdamW final : public BufferedOptimizer<Dev> {
 public:
  AdamW(Dev& dev, ParameterStore<Dev>& store, AdamWOptions options)
      : BufferedOptimizer<Dev>(dev, store, {"exp_avg", "exp_avg_sq"}),
        update_(detail::adam_update(options)) {}

  [[nodiscard]] std::string name() const override { return "adamw"; }
  [[nodiscard]] std::string settings() const override { return detail::adam_settings(update_); }
  void apply(Dev& dev, ConstView<Dev> state) override {
    auto& store = this->store_;
    detail::adamw_update(dev, update_, store.trained(), state, store.gradients(), this->buffer(0),
                         this->buffer(1), this->masters());
  }

 private:
  detail::AdamUpdate update_;
};

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>&,
                                                             const AdamWOptions& options) {
  return std::unique_ptr<Optimizer<Dev>>(new AdamW<Dev>(dev, store, options));
}

}  // namespace dhp
