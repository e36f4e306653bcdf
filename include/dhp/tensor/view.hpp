// View and ConstView: the arguments of ops. A view has a type and a shape but does not own its memory, which is
// contiguous and row-major. A Tensor converts to ConstView implicitly and to View by mut().
#pragma once

#include <dhp/core/shape.hpp>
#include <dhp/core/types.hpp>
#include <dhp/device/device.hpp>

#include <atomic>
#include <cstddef>
#include <type_traits>

namespace dhp {

namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] inline void fail_read_as(DType is, DType as) {
  fail("a tensor of ", is, " was read as ", as);
}
/// A kernel argument that converts to a pointer to the view's elements, of the type that the kernel expects.
template <class AnyView>
struct Elements {
  const AnyView& of;
  template <class T>
  operator T*() const {
    return of.template data<std::remove_const_t<T>>();
  }
};
}  // namespace detail

template <class Dev, class Byte>
class BasicView {
 public:
  BasicView() = default;
  BasicView(Byte* data, DType dtype, const Shape& shape)
      : data_(data), dtype_(dtype), shape_(shape) {}
  /// Converts a View to a ConstView.
  template <class Other>
    requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
  BasicView(const BasicView<Dev, Other>& other)
      : BasicView(other.bytes(), other.dtype(), other.shape()) {}

  [[nodiscard]] bool empty() const { return data_ == nullptr; }
  [[nodiscard]] explicit operator bool() const { return data_ != nullptr; }
  [[nodiscard]] Byte* bytes() const { return data_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  /// Returns the number of elements, which is 0 for an empty view.
  [[nodiscard]] std::int64_t count() const { return empty() ? 0 : shape_.count(); }
  [[nodiscard]] std::int64_t rows() const { return shape_.rows(); }
  [[nodiscard]] std::int64_t columns() const { return shape_.back(); }
  [[nodiscard]] std::size_t size_bytes() const {
    return detail::as_size(count()) * size_of(dtype_);
  }

  /// Returns the elements as T. If the device is not host-accessible, only kernels may dereference the pointer. Call
  /// data() again after Eigen has written 16-bit elements.
  template <class T>
  [[nodiscard]] auto data() const {
    using Pointer = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;
    if (dtype_ != dtype_of<T>()) [[unlikely]]
      detail::fail_read_as(dtype_, dtype_of<T>());
    // Eigen's 16-bit types differ from dhp's: the fence stops reordering by type-based aliasing.
    if constexpr (is_16_bit<T>) std::atomic_signal_fence(std::memory_order_acq_rel);
    return reinterpret_cast<Pointer>(data_);
  }
  [[nodiscard]] detail::Elements<BasicView> data() const { return {*this}; }

  [[nodiscard, gnu::noinline]] BasicView as(const Shape& shape) const {
    check(shape.count() == count(), "cannot view ", shape_, " as ", shape);
    return {data_, dtype_, shape};
  }
  /// Returns entries [first, last) of dim 0.
  [[nodiscard, gnu::noinline]] BasicView slice(std::int64_t first, std::int64_t last) const {
    check(shape_.rank() >= 1 && 0 <= first && first <= last && last <= shape_[0], "no slice [",
          first, ", ", last, ") in ", shape_);
    const auto stride = shape_[0] == 0 ? 0 : count() / shape_[0];
    return {data_ + detail::as_size(first * stride) * size_of(dtype_), dtype_,
            shape_.with(0, last - first)};
  }
  [[nodiscard]] BasicView slice(Range entries) const { return slice(entries.first, entries.last); }

 private:
  Byte* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
};

template <class Dev>
using View = BasicView<Dev, std::byte>;
template <class Dev>
using ConstView = BasicView<Dev, const std::byte>;

/// Parameter types of ops. Only the op's first argument deduces the device, so that tensors and views convert.
template <class Dev>
using InView = std::type_identity_t<ConstView<Dev>>;
template <class Dev>
using OutView = std::type_identity_t<View<Dev>>;

namespace detail {
/// Copies the bytes of `from` to `to`, which has the same size.
template <Device Dev>
void copy(Dev& dev, InView<Dev> from, OutView<Dev> to) {
  dev.copy(to.bytes(), from.bytes(), from.size_bytes());
}
/// Returns the elements as T, or null for an empty view.
template <class T, class Dev, class Byte>
[[nodiscard]] auto* data_or_null(const BasicView<Dev, Byte>& view) {
  return view.empty() ? nullptr : view.template data<T>();
}
}  // namespace detail

}  // namespace dhp
