// HostArray: an array in host memory. File readers return it, and batchers fill it.
#pragma once

#include <dhp/core/shape.hpp>
#include <dhp/core/types.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace dhp {

class HostArray {
 public:
  HostArray() = default;  ///< no array
  /// Makes an array of zeros.
  HostArray(DType dtype, const Shape& shape)
      : dtype_(dtype),
        shape_(shape),
        bytes_(detail::as_size(shape.count()) * size_of(dtype)),
        present_(true) {}
  /// Copies the bytes of the elements.
  HostArray(DType dtype, const Shape& shape, std::span<const std::byte> bytes)
      : dtype_(dtype), shape_(shape), bytes_(bytes.begin(), bytes.end()), present_(true) {
    check(bytes.size() == detail::as_size(shape.count()) * size_of(dtype), "an array of shape ",
          shape, " needs ", shape.count(), " values, got ", bytes.size() / size_of(dtype));
  }
  template <class T>
  HostArray(const Shape& shape, const std::vector<T>& values)
      : HostArray(dtype_of<T>(), shape, std::as_bytes(std::span(values))) {}

  [[nodiscard]] bool empty() const { return !present_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] std::span<T> values() {
    check_type<T>();
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    check_type<T>();
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  friend bool operator==(const HostArray&, const HostArray&) = default;

 private:
  template <class T>
  void check_type() const {
    check(dtype_ == dtype_of<T>(), "an array of ", dtype_, " was read as ", dtype_of<T>());
  }

  DType dtype_ = DType::f32;
  Shape shape_;
  std::vector<std::byte> bytes_;
  bool present_ = false;
};

}  // namespace dhp
