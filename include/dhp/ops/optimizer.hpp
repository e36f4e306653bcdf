// Fused optimizer updates of one contiguous range: read gradient and state once, write weights once. All
// tensors are of the accumulation type but `value`, the weights as layers read them; `master` may be the
// same memory as `value` where these have the accumulation type.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

struct SgdUpdate {
  double lr = 0;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  double gradient_scale = 1;  ///< multiplies the gradient: clipping, loss scale
};

struct AdamUpdate {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  ///< counted from 1, for the bias correction
  double gradient_scale = 1;
};

namespace detail {

/// Throws unless `state` has the count of the weights and their accumulation type.
template <Device Dev>
void check_update(const char* op, const char* what, ConstView<Dev> weights, ConstView<Dev> state) {
  if (state.count() != weights.count() || state.dtype() != accumulation_type(weights.dtype()))
    fail("", op, ": ", what, " ", state.shape(), " of ", state.dtype(),
         " does not fit the weights ", weights.shape(), " of ", weights.dtype());
}

}  // namespace detail

/// g = scale * gradient + decay * w; m = mu m + g; w -= lr * (nesterov ? g + mu m : m). `momentum` is
/// empty where mu is 0.
template <Device Dev>
void sgd_update(Dev& dev, const SgdUpdate& update, In<Dev> gradient, Out<Dev> momentum,
                Out<Dev> master, Out<Dev> value) {
  detail::check_update<Dev>("sgd_update", "the gradient", value, gradient);
  detail::check_update<Dev>("sgd_update", "the master", value, master);
  check(!momentum.empty() || update.momentum == 0 || value.count() == 0, "sgd_update: momentum ",
        update.momentum, " needs a buffer for it");
  if (!momentum.empty()) detail::check_update<Dev>("sgd_update", "the momentum", value, momentum);
  sgd_update_on(dev, update, gradient, momentum, master, value);
}

/// AdamW: m, v are moving means of g and g^2; w -= lr * (m^ / (sqrt(v^) + epsilon) + decay * w)
/// (Loshchilov & Hutter 2019).
template <Device Dev>
void adamw_update(Dev& dev, const AdamUpdate& update, In<Dev> gradient, Out<Dev> m, Out<Dev> v,
                  Out<Dev> master, Out<Dev> value) {
  check(update.step >= 1, "adamw_update: steps count from 1, got ", update.step);
  detail::check_update<Dev>("adamw_update", "the gradient", value, gradient);
  detail::check_update<Dev>("adamw_update", "m", value, m);
  detail::check_update<Dev>("adamw_update", "v", value, v);
  detail::check_update<Dev>("adamw_update", "the master", value, master);
  adamw_update_on(dev, update, gradient, m, v, master, value);
}

/// LAMB's first half (You et al. 2020): direction = m^ / (sqrt(v^) + epsilon) + decay * w; may be the
/// gradient's memory.
template <Device Dev>
void lamb_direction(Dev& dev, const AdamUpdate& update, In<Dev> gradient, Out<Dev> m, Out<Dev> v,
                    In<Dev> master, Out<Dev> direction) {
  check(update.step >= 1, "lamb_direction: steps count from 1, got ", update.step);
  detail::check_update<Dev>("lamb_direction", "the gradient", master, gradient);
  detail::check_update<Dev>("lamb_direction", "m", master, m);
  detail::check_update<Dev>("lamb_direction", "v", master, v);
  detail::check_update<Dev>("lamb_direction", "the direction", master, direction);
  lamb_direction_on(dev, update, gradient, m, v, master, direction);
}

/// w -= rate * direction
template <Device Dev>
void apply_direction(Dev& dev, double rate, In<Dev> direction, Out<Dev> master, Out<Dev> value) {
  detail::check_update<Dev>("apply_direction", "the direction", value, direction);
  detail::check_update<Dev>("apply_direction", "the master", value, master);
  apply_direction_on(dev, rate, direction, master, value);
}

}  // namespace dhp
