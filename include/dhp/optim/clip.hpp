// Clipping by the global norm (Pascanu et al. 2013): gradients are scaled so that it is at most `limit`.
#pragma once

namespace dhp {

/// The factor for every gradient, given the norm of all of them; 1 where limit is 0 (no clipping).
[[nodiscard]] constexpr double clip_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1;
}

}  // namespace dhp
