// Tensor: a move-only array that owns or borrows its memory. share() adds an owner without a copy. A shared tensor is
// read-only, so that a tape or a deferred weight gradient can rely on its contents.
#pragma once

#include <dhp/tensor/view.hpp>

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
template <class Dev>
struct NormTrace;
template <class Dev>
struct ElementFacts;
}  // namespace detail

template <class Dev>
class Tensor {
 public:
  Tensor() = default;  ///< empty: for example, the input of a stage that reads only side inputs
  /// Allocates uninitialized device memory.
  [[gnu::noinline]] Tensor(Dev& dev, DType dtype, const Shape& shape)
      : dtype_(dtype),
        shape_(shape),
        storage_(dev.allocate(detail::as_size(shape.count()) * size_of(dtype))) {}
  /// Borrows device memory, row-major and aligned for its type. The pointer's owner must live as long as any tensor
  /// uses the memory; the pointer's deleter may do nothing.
  Tensor(std::shared_ptr<std::byte> memory, DType dtype, const Shape& shape)
      : dtype_(dtype), shape_(shape), storage_(std::move(memory)) {}
  /// Borrows read-only memory: mut() throws Error, and no layer works in place.
  Tensor(std::shared_ptr<const std::byte> memory, DType dtype, const Shape& shape)
      : Tensor(std::const_pointer_cast<std::byte>(std::move(memory)), dtype, shape) {
    read_only_ = true;
  }

  // Move assignment and destructor are not inlined, because they would enlarge the code of every use of a tensor.
  /// A moved-from tensor is empty and has no shape, so that a later use of it is refused.
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  [[gnu::noinline]] Tensor& operator=(Tensor&& other) noexcept {
    dtype_ = other.dtype_;
    shape_ = std::exchange(other.shape_, {});
    storage_ = std::move(other.storage_);
    facts_ = std::move(other.facts_);
    read_only_ = other.read_only_;
    return *this;
  }
  [[gnu::noinline]] ~Tensor() {}

  [[nodiscard, gnu::noinline]] static Tensor zeros(Dev& dev, DType dtype, const Shape& shape) {
    Tensor result(dev, dtype, shape);
    dev.fill_zero(result.storage_.get(), result.size_bytes());
    return result;
  }
  /// Returns zeros that live as long as a run. If the device can, it allocates exactly this size, outside its pool.
  [[nodiscard, gnu::noinline]] static Tensor persistent(Dev& dev, DType dtype, const Shape& shape) {
    if constexpr (requires { dev.allocate_persistent(std::size_t{}); }) {
      const auto bytes = detail::as_size(shape.count()) * size_of(dtype);
      Tensor result(dev.allocate_persistent(bytes), dtype, shape);
      dev.fill_zero(result.storage_.get(), bytes);
      return result;
    } else {
      return zeros(dev, dtype, shape);
    }
  }
  /// Copies host values to the device: a std::vector or a std::span of an element type.
  [[nodiscard]] static Tensor from_host(Dev& dev, const Shape& shape, const auto& values) {
    return from_array(dev, shape, values.data(), values.size());
  }

  [[nodiscard]] bool empty() const { return storage_ == nullptr; }
  [[nodiscard]] explicit operator bool() const { return storage_ != nullptr; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  /// Returns the number of elements, which is 0 for an empty tensor.
  [[nodiscard]] std::int64_t count() const { return empty() ? 0 : shape_.count(); }
  [[nodiscard]] std::int64_t rows() const { return shape_.rows(); }
  [[nodiscard]] std::int64_t columns() const { return shape_.back(); }
  [[nodiscard]] std::size_t size_bytes() const {
    return detail::as_size(count()) * size_of(dtype_);
  }

  operator ConstView<Dev>() const { return {storage_.get(), dtype_, shape_}; }
  [[nodiscard]] ConstView<Dev> view() const { return *this; }
  /// Gives write access. Throws Error while the elements have another owner.
  [[nodiscard, gnu::noinline]] View<Dev> mut() {
    check(unique() || empty(), read_only_ ? "a borrowed" : "a shared", " tensor of shape ", shape_,
          " is read-only: write into a fresh one");
    if (facts_ != nullptr) facts_.reset();  // no write if null: threads may call mut() concurrently
    return {storage_.get(), dtype_, shape_};
  }
  /// Returns true if mut() would succeed, so that an op may work in place.
  [[nodiscard]] bool unique() const { return !read_only_ && storage_.use_count() == 1; }

  [[nodiscard, gnu::noinline]] Tensor share() const {
    Tensor second;
    second.dtype_ = dtype_;
    second.shape_ = shape_;
    second.storage_ = storage_;
    second.read_only_ = read_only_;
    if (facts_ != nullptr) {
      if (facts_->column_sums) second.facts().column_sums = facts_->column_sums.share();
      if (facts_->norm) second.facts().norm = facts_->norm;
    }
    return second;
  }
  /// Returns entries [first, last) of dim 0 as a read-only tensor that shares the memory.
  [[nodiscard]] Tensor part(std::int64_t first, std::int64_t last) const {
    const auto of = view().slice(first, last);
    return {std::shared_ptr<const std::byte>(storage_, of.bytes()), dtype_, of.shape()};
  }
  /// Attaches the column sums of the elements and of their squares, [2, C] in the accumulation type, so that a batch
  /// norm need not read the elements. Writing to the tensor drops the sums.
  void carry_column_sums(Tensor sums) {
    check(sums.dtype() == accumulation_type(dtype_) && sums.shape() == Shape{2, columns()},
          "the sums of the columns of ", shape_, " of ", dtype_, " cannot be ", sums.shape(),
          " of ", sums.dtype());
    facts().column_sums = std::move(sums);
  }
  /// Returns the attached column sums, or an empty view if there are none.
  [[nodiscard]] ConstView<Dev> column_sums() const {
    return facts_ == nullptr ? ConstView<Dev>() : facts_->column_sums.view();
  }
  /// Attaches, to the output of a batch norm with ReLU, the norm's input for its gradient. Writing drops the input.
  void carry_norm(std::shared_ptr<const detail::NormTrace<Dev>> norm) {
    if (norm != nullptr) facts().norm = std::move(norm);
  }
  /// Returns the attached input of the batch norm, or null if there is none.
  [[nodiscard]] const detail::NormTrace<Dev>* norm() const {
    return facts_ == nullptr ? nullptr : facts_->norm.get();
  }
  /// Drops the attached input, to free its memory, or because the gradients of several consumers are summed.
  void drop_norm() {
    if (facts_ != nullptr) facts_->norm.reset();
  }
  /// Attaches the batch norm's sums [2, C] of dy and of dy * normalized x to a gradient dy that the ReLU has already
  /// masked. Writing to the tensor drops the sums, and share() does not copy them.
  void carry_norm_sums(Tensor sums) { facts().norm_sums = std::move(sums); }
  [[nodiscard]] bool has_norm_sums() const {
    return facts_ != nullptr && !facts_->norm_sums.empty();
  }
  [[nodiscard]] Tensor take_norm_sums() { return std::move(facts().norm_sums); }
  [[nodiscard]] Tensor reshape(const Shape& shape) && {
    check(shape.count() == count(), "cannot reshape ", shape_, " to ", shape);
    if (shape != shape_) facts_.reset();
    shape_ = shape;
    return std::move(*this);
  }
  /// Returns the first entries of dim 0. The tensor keeps the memory of the other entries.
  [[nodiscard]] Tensor shortened(std::int64_t entries) && {
    if (empty() || entries == shape_[0]) return std::move(*this);
    shape_ = view().slice(0, entries).shape();
    facts_.reset();
    return std::move(*this);
  }

  /// Copies the elements to the host; T must be the element type.
  template <class T>
  [[nodiscard, gnu::noinline]] std::vector<T> to_host(Dev& dev) const {
    if (dtype_ != dtype_of<T>()) detail::fail_read_as(dtype_, dtype_of<T>());
    std::vector<T> values(detail::as_size(count()));
    dev.copy_to_host(reinterpret_cast<std::byte*>(values.data()), storage_.get(), size_bytes());
    return values;
  }

 private:
  template <class T>
  [[nodiscard, gnu::noinline]] static Tensor from_array(Dev& dev, const Shape& shape, const T* from,
                                                        std::size_t values) {
    check(values == detail::as_size(shape.count()), "a tensor of shape ", shape, " needs ",
          shape.count(), " values, got ", values);
    Tensor result(dev, dtype_of<T>(), shape);
    dev.copy_from_host(result.storage_.get(), reinterpret_cast<const std::byte*>(from),
                       result.size_bytes());
    return result;
  }

  detail::ElementFacts<Dev>& facts() {
    if (facts_ == nullptr) facts_ = std::make_unique<detail::ElementFacts<Dev>>();
    return *facts_;
  }

  DType dtype_ = DType::f32;
  Shape shape_;
  std::shared_ptr<std::byte> storage_;
  std::unique_ptr<detail::ElementFacts<Dev>> facts_;
  bool read_only_ = false;  ///< borrowed from a const owner
};

namespace detail {
/// The input x of a batch norm with ReLU, its statistics [C], and the signs of its result in a device's format.
template <class Dev>
struct NormTrace {
  Tensor<Dev> x, mean, inv_std, signs;
};

/// Cached results about a tensor's elements, which are dropped when the elements are written.
template <class Dev>
struct ElementFacts {
  Tensor<Dev> column_sums, norm_sums;
  std::shared_ptr<const NormTrace<Dev>> norm;
};
}  // namespace detail

/// Returns a deep copy on the same device.
template <Device Dev>
[[nodiscard, gnu::noinline]] Tensor<Dev> clone(Dev& dev, ConstView<Dev> from) {
  Tensor<Dev> result(dev, from.dtype(), from.shape());
  detail::copy(dev, from, result.mut());
  return result;
}

}  // namespace dhp
