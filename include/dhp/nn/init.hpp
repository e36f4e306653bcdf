// Initial weights: a pure function of (seed, use, global element index), in double, rounded once.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/core/shape.hpp>

#include <cmath>

namespace dhp {

struct Initializer {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant, the standard deviation, or the bound of [-bound, bound)

  /// The element with this global index; stream: the parameter's own.
  [[nodiscard]] double operator()(RandomStream stream, std::int64_t index) const {
    const auto at = static_cast<std::uint64_t>(index);
    switch (kind) {
      case Kind::constant: return value;
      case Kind::normal: return value * stream.normal(at);
      case Kind::uniform: return value * (2 * stream.uniform(at) - 1);
    }
    return 0;
  }
};

[[nodiscard]] inline Initializer constant(double value) {
  return {Initializer::Kind::constant, value};
}
[[nodiscard]] inline Initializer normal(double deviation) {
  return {Initializer::Kind::normal, deviation};
}
[[nodiscard]] inline Initializer uniform(double bound) {
  return {Initializer::Kind::uniform, bound};
}
/// He et al. 2015, "Delving deep into rectifiers", section 2.2: deviation sqrt(2 / fan).
[[nodiscard]] inline Initializer he_normal(std::int64_t fan) {
  return normal(std::sqrt(2.0 / static_cast<double>(fan)));
}
/// The bound 1/sqrt(fan_in) of common linear layers.
[[nodiscard]] inline Initializer linear_uniform(std::int64_t fan_in) {
  return uniform(1.0 / std::sqrt(static_cast<double>(fan_in)));
}

}  // namespace dhp
