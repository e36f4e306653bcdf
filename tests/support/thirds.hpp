// q, k and v, or their gradients, as the columns of one matrix.
#pragma once

#include <dhp/ops/rows.hpp>
#include <dhp/tensor/tensor.hpp>

namespace tests {

using namespace dhp;

template <class Dev>
class Thirds {
 public:
  Tensor<Dev> all;  ///< [R, 3 C]

  Thirds(Dev& dev, DType type, const Shape& part)
      : all(dev, type, {part[0], 3 * part[1]}), part_(part) {}
  /// The view that attention takes, with row_stride 3 C.
  [[nodiscard]] View<Dev> at(int which) {
    return {all.mut().bytes() + static_cast<std::size_t>(which * part_[1]) * size_of(all.dtype()),
            all.dtype(), part_};
  }
  void put(Dev& dev, int which, const Tensor<Dev>& values) {
    copy_columns(dev, values, 0, all.mut(), which * part_[1], part_[1]);
  }
  [[nodiscard]] Tensor<Dev> take(Dev& dev, int which) const {
    Tensor<Dev> values(dev, all.dtype(), part_);
    copy_columns(dev, all, which * part_[1], values.mut(), 0, part_[1]);
    return values;
  }

 private:
  Shape part_;
};

}  // namespace tests
