// Maps between Eigen and dhp on the same memory, both ways, without a copy. Tensors are row-major, and Eigen's matrices
// column-major, so a matrix with one observation per column is a tensor [observations, features].
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>

#include <Eigen/Core>
#include <unsupported/Eigen/CXX11/Tensor>

#include <memory>
#include <type_traits>
#include <utility>

namespace dhp::eigen {

/// Eigen's type for an element type of dhp.
template <class T>
using Scalar = std::conditional_t<std::is_same_v<T, bf16>, Eigen::bfloat16,
                                  std::conditional_t<std::is_same_v<T, f16>, Eigen::half, T>>;
/// dhp's type for a scalar type of Eigen.
template <class S>
using Element = std::conditional_t<std::is_same_v<S, Eigen::bfloat16>, bf16,
                                   std::conditional_t<std::is_same_v<S, Eigen::half>, f16, S>>;
static_assert(sizeof(Eigen::bfloat16) == sizeof(bf16) && sizeof(Eigen::half) == sizeof(f16));

template <class T>
using RowMajor = Eigen::Matrix<Scalar<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ColumnMajor = Eigen::Matrix<Scalar<T>, Eigen::Dynamic, Eigen::Dynamic>;

namespace detail {

// Returns a tensor's read-only view, or a given view unchanged.
template <class From>
auto host_view(From&& from) {
  if constexpr (requires { from.view(); }) {
    static_assert(std::is_lvalue_reference_v<From>,
                  "the map would outlive this temporary tensor: give the tensor a name");
    return from.view();
  } else {
    return from;
  }
}

// Returns a view's elements as Eigen's type.
template <class T, class Dev, class Byte>
auto* elements(const BasicView<Dev, Byte>& view) {
  static_assert(Dev::host_accessible, "Eigen computes on the host: copy the tensor there first");
  check(!view.empty() && view.shape().rank() > 0, "Eigen cannot map ",
        view.empty() ? "an empty tensor" : "a tensor without a dim",
        ": map one that has memory and at least one dim");
  using To = std::conditional_t<std::is_const_v<Byte>, const Scalar<T>, Scalar<T>>;
  return reinterpret_cast<To*>(view.template data<T>());
}

// Plain, made const if the elements S are const.
template <class Plain, class S>
using Like = std::conditional_t<std::is_const_v<S>, const Plain, Plain>;

}  // namespace detail

/// Returns a tensor [.., C] as a row-major matrix with one sample per row.
template <class T, class From>
[[nodiscard]] auto rows_of(From&& from) {
  const auto view = detail::host_view(std::forward<From>(from));
  auto* const data = detail::elements<T>(view);
  return Eigen::Map<detail::Like<RowMajor<T>, std::remove_pointer_t<decltype(data)>>>(
      data, view.rows(), view.columns());
}

/// Returns a tensor [.., C] as a column-major matrix with one sample per column.
template <class T, class From>
[[nodiscard]] auto columns_of(From&& from) {
  const auto view = detail::host_view(std::forward<From>(from));
  auto* const data = detail::elements<T>(view);
  return Eigen::Map<detail::Like<ColumnMajor<T>, std::remove_pointer_t<decltype(data)>>>(
      data, view.columns(), view.rows());
}

/// Returns a tensor of `rank` dims as an Eigen::TensorMap with the same indices in the same order.
template <class T, int rank, class From>
[[nodiscard]] auto tensor_of(From&& from) {
  const auto view = detail::host_view(std::forward<From>(from));
  auto* const data = detail::elements<T>(view);
  check(view.shape().rank() == rank, "tensor_of: a tensor of shape ", view.shape(), " has ",
        view.shape().rank(), " dims, not ", rank);
  Eigen::array<Eigen::Index, dhp::detail::as_size(rank)> extents;
  for (int dim = 0; dim < rank; ++dim) extents[dhp::detail::as_size(dim)] = view.shape()[dim];
  using Plain = Eigen::Tensor<Scalar<T>, rank, Eigen::RowMajor>;
  return Eigen::TensorMap<detail::Like<Plain, std::remove_pointer_t<decltype(data)>>>(data,
                                                                                      extents);
}

namespace detail {

template <class M>
inline constexpr bool is_matrix = std::is_base_of_v<Eigen::DenseBase<M>, M>;
template <class M>
inline constexpr bool owns_memory = std::is_base_of_v<Eigen::PlainObjectBase<M>, M>;
template <class S, int rank, int options, class Index>
inline constexpr bool owns_memory<Eigen::Tensor<S, rank, options, Index>> = true;
template <class S, class Sizes, int options, class Index>
inline constexpr bool owns_memory<Eigen::TensorFixedSize<S, Sizes, options, Index>> = true;

// Returns true if the elements of M are in memory, and false for expressions that Eigen evaluates lazily.
template <class M>
constexpr bool has_memory() {
  if constexpr (is_matrix<M>) return (M::Flags & Eigen::DirectAccessBit) != 0;
  else return requires(M & matrix) {
      matrix.data();
    };
}

// Returns the shape of a tensor on the matrix's memory. Throws Error if the elements are not contiguous.
template <class M>
Shape row_major_shape(const M& matrix) {
  if constexpr (is_matrix<M>) {
    const Shape shape = M::IsVectorAtCompileTime ? Shape{matrix.size()}
                                                 : Shape{matrix.outerSize(), matrix.innerSize()};
    const auto inner = matrix.innerStride(), outer = matrix.outerStride();
    check((inner == 1 || matrix.innerSize() <= 1) &&
              (outer == matrix.innerSize() || matrix.outerSize() <= 1),
          "borrow: a ", matrix.rows(), " x ", matrix.cols(), " matrix with inner stride ", inner,
          " and outer stride ", outer, " would be scrambled as a tensor ", shape,
          ", which needs strides 1 and ", matrix.innerSize(), "; adopt() a copy of it, its eval()");
    return shape;
  } else {
    const auto& extents = matrix.dimensions();
    constexpr bool row_major = static_cast<int>(M::Layout) == static_cast<int>(Eigen::RowMajor);
    constexpr std::size_t dims = M::NumIndices;
    Shape shape;
    for (std::size_t dim = 0; dim < dims; ++dim)
      shape.push_back(extents[row_major ? dim : dims - 1 - dim]);
    return shape;
  }
}

template <class M, class Owner>
Tensor<Cpu> tensor_over(M& matrix, Owner owner) {
  static_assert(has_memory<std::remove_const_t<M>>(),
                "this expression has no memory to borrow: give adopt() its eval()");
  auto* const data = matrix.data();
  using S = std::remove_pointer_t<decltype(data)>;
  using Byte = std::conditional_t<std::is_const_v<S>, const std::byte, std::byte>;
  const Shape shape = row_major_shape(matrix);
  check(data != nullptr || shape.count() == 0, "borrow: a matrix for a tensor ", shape,
        " has no memory; a map needs the address of its elements");
  // The tensor has its own use count, so that other owners of the matrix do not make it read-only.
  std::shared_ptr<Byte> memory(reinterpret_cast<Byte*>(data), [owner = std::move(owner)](Byte*) {});
  // A matrix without elements has no memory, but its tensor must not be empty().
  if (data == nullptr) memory = std::make_shared<std::byte>();
  return {std::move(memory), dtype_of<Element<std::remove_const_t<S>>>(), shape};
}

}  // namespace detail

/// Returns a tensor over the memory of a matrix, array, block, map or Eigen::Tensor, which must outlive the tensor. A
/// column-major F x N matrix becomes [N, F], a row-major N x F matrix [N, F], and a vector [N]. A const matrix gives a
/// read-only tensor. Throws Error if the elements are not contiguous.
template <class M>
[[nodiscard]] Tensor<Cpu> borrow(M&& matrix) {
  static_assert(std::is_lvalue_reference_v<M> || !detail::owns_memory<std::remove_cvref_t<M>>,
                "the tensor would outlive this temporary matrix: give it to adopt()");
  return detail::tensor_over(matrix, nullptr);
}

/// Like borrow(), but the tensor shares the ownership of the matrix and so keeps it alive.
template <class M>
[[nodiscard]] Tensor<Cpu> adopt(std::shared_ptr<M> owner) {
  auto& matrix = *owner;
  return detail::tensor_over(matrix, std::move(owner));
}
/// Like borrow(), but the tensor owns the matrix. adopt(std::move(matrix)) does not copy the elements.
template <class M>
  requires(detail::owns_memory<M>)
[[nodiscard]] Tensor<Cpu> adopt(M matrix) { return adopt(std::make_shared<M>(std::move(matrix))); }

}  // namespace dhp::eigen
