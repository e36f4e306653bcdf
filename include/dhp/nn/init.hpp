// Initial weights: each is a function of (seed, use, global element index), computed in double and rounded once.
#pragma once

#include <dhp/core/normals.hpp>
#include <dhp/core/shape.hpp>
#include <dhp/core/types.hpp>

#include <algorithm>
#include <cmath>
#include <span>

namespace dhp {

struct Initializer {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant, the standard deviation, or the bound in [-bound, bound)

  /// Returns the element with this global index; stream: the random stream of the parameter.
  [[nodiscard]] double operator()(RandomStream stream, std::int64_t index) const {
    const auto at = static_cast<std::uint64_t>(index);
    switch (kind) {
      case Kind::constant: return value;
      case Kind::normal: return value * stream.normal(at);
      case Kind::uniform: return value * (2 * stream.uniform(at) - 1);
    }
    return 0;
  }
  /// Writes the elements from `first` on, with the same bits as operator(). If T is not double, normal values take less
  /// time.
  template <class T>
  void fill(const RandomStream& stream, std::int64_t first, std::span<T> to) const {
    const auto one = [&](std::size_t at) {
      return static_cast<T>((*this)(stream, first + static_cast<std::int64_t>(at)));
    };
    if (kind == Kind::constant) {
      std::fill(to.begin(), to.end(), static_cast<T>(value));
    } else if (kind == Kind::uniform || std::is_same_v<T, double> || to.size() < short_run) {
      for (std::size_t at = 0; at < to.size(); ++at) to[at] = one(at);
    } else if constexpr (!std::is_same_v<T, double>) {
      constexpr std::size_t most = detail::NormalBlock::count;
      for (std::size_t begin = 0; begin < to.size(); begin += most) {
        const detail::NormalBlock normals(stream, static_cast<std::uint64_t>(first) + begin);
        T low[most], high[most];
        const bool sure = bounds(normals, low, high);
        const auto part = std::min(most, to.size() - begin);
        for (std::size_t at = 0; !sure && at < part; ++at)
          if (bits(low[at]) != bits(high[at])) low[at] = one(begin + at);
        std::copy_n(low, part, to.begin() + static_cast<std::ptrdiff_t>(begin));
      }
    }
  }

 private:
  static constexpr std::size_t short_run = 32;  // for fewer elements, a NormalBlock does not pay

  template <class T>
  [[nodiscard]] static std::uint32_t bits(T value) {
    if constexpr (is_16_bit<T>) return value.bits;
    else return std::bit_cast<std::uint32_t>(value);
  }
  /// Rounds a lower and an upper bound of each element. If they round alike, the result is the element's value. About
  /// one float in a million has a rounding boundary in between. Returns whether all round alike.
  template <class T>
  [[nodiscard]] bool bounds(const detail::NormalBlock& normals, T* low, T* high) const {
    const double size = std::fabs(value);
    std::uint32_t differ = 0;
    for (int at = 0; at < detail::NormalBlock::count; ++at) {
      const double near = value * normals.value[at];
      const double error = size * (normals.radius[at] * detail::NormalBlock::error) + 0x1p-1000;
      if constexpr (is_16_bit<T>) {  // adds in float, which is faster
        const auto narrow = static_cast<float>(near);
        const float wide = static_cast<float>(error + std::fabs(near) * 0x1p-22) + 0x1p-126f;
        low[at] = static_cast<T>(narrow - wide);
        high[at] = static_cast<T>(narrow + wide);
      } else {
        low[at] = static_cast<T>(near - error);
        high[at] = static_cast<T>(near + error);
      }
      differ |= bits(low[at]) ^ bits(high[at]);
    }
    return differ == 0;
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
/// The deviation sqrt(2 / fan) of He et al. 2015, "Delving deep into rectifiers", section 2.2.
[[nodiscard]] inline Initializer he_normal(std::int64_t fan) {
  return normal(std::sqrt(2.0 / static_cast<double>(fan)));
}
/// The bound 1 / sqrt(fan_in) that linear layers commonly use.
[[nodiscard]] inline Initializer linear_uniform(std::int64_t fan_in) {
  return uniform(1.0 / std::sqrt(static_cast<double>(fan_in)));
}

}  // namespace dhp
