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

/// g = scale * gradient + decay * w; m = mu m + g; w -= lr * (nesterov ? g + mu m : m). `momentum` is
/// empty where mu is 0.
template <Device Dev>
void sgd_update(Dev& dev, const SgdUpdate& update, In<Dev> gradient, Out<Dev> momentum,
                Out<Dev> master, Out<Dev> value) {
  check(gradient.count() == value.count() && master.count() == value.count() &&
            (momentum.empty() ? update.momentum == 0 : momentum.count() == value.count()),
        "sgd_update: gradient ", gradient.shape(), " and state do not fit ", value.shape());
  sgd_update_on(dev, update, gradient, momentum, master, value);
}

/// AdamW: m, v are moving means of g and g^2; w -= lr * (m^ / (sqrt(v^) + epsilon) + decay * w).
template <Device Dev>
void adamw_update(Dev& dev, const AdamUpdate& update, In<Dev> gradient, Out<Dev> m, Out<Dev> v,
                  Out<Dev> master, Out<Dev> value) {
  check(gradient.count() == value.count() && m.count() == value.count() &&
            v.count() == value.count() && master.count() == value.count(),
        "adamw_update: gradient ", gradient.shape(), " and state do not fit ", value.shape());
  adamw_update_on(dev, update, gradient, m, v, master, value);
}

/// LAMB's first half: direction = m^ / (sqrt(v^) + epsilon) + decay * w; may be the gradient's memory.
template <Device Dev>
void lamb_direction(Dev& dev, const AdamUpdate& update, In<Dev> gradient, Out<Dev> m, Out<Dev> v,
                    In<Dev> master, Out<Dev> direction) {
  check(gradient.count() == direction.count() && m.count() == direction.count() &&
            v.count() == direction.count() && master.count() == direction.count(),
        "lamb_direction: gradient ", gradient.shape(), " and state do not fit ", direction.shape());
  lamb_direction_on(dev, update, gradient, m, v, master, direction);
}

/// w -= rate * direction
template <Device Dev>
void apply_direction(Dev& dev, double rate, In<Dev> direction, Out<Dev> master, Out<Dev> value) {
  check(direction.count() == value.count() && master.count() == value.count(),
        "apply_direction: ", direction.shape(), " does not fit ", value.shape());
  apply_direction_on(dev, rate, direction, master, value);
}

}  // namespace dhp
