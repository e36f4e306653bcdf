// Exchanges tensors with NumPy, PyTorch, CuPy, JAX and other libraries without a copy, by DLPack. No function here
// waits for a GPU: both sides must use the same stream, or one of them must synchronize first.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <array>
#include <iterator>
#include <memory>
#include <utility>

namespace dhp {

/// The structs of DLPack's published ABI, of versions 1.x and of the version before. Programs that include dlpack.h may
/// use that header's structs instead, because the functions below rely only on the names of members.
namespace dlpack {

struct DLPackVersion {
  std::uint32_t major, minor;
};
struct DLDevice {
  std::int32_t device_type, device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  std::byte* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t *shape, *strides;  ///< in elements; null strides mean row-major
  std::uint64_t byte_offset;
};
struct Context;  ///< owned by the side that made the struct

struct DLManagedTensor {
  DLTensor dl_tensor;
  Context* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  Context* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned*);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
              sizeof(DLManagedTensorVersioned) == 80);

inline constexpr std::uint64_t read_only = 1;  ///< a bit of DLManagedTensorVersioned::flags
inline constexpr std::int32_t cpu = 1, cuda = 2, cuda_host = 3, cuda_managed = 13;

struct Element {
  DType type;
  std::uint8_t code, bits;
};
inline constexpr Element elements[] = {
    {DType::f64, 2, 64}, {DType::f32, 2, 32}, {DType::f16, 2, 16}, {DType::bf16, 4, 16},
    {DType::i64, 0, 64}, {DType::i32, 0, 32}, {DType::u8, 1, 8}};

[[nodiscard]] inline DType dtype_of(int code, int bits, int lanes) {
  for (const auto& one : elements)
    if (one.code == code && one.bits == bits && lanes == 1) return one.type;
  constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  fail("from_dlpack: dhp has no elements of ", code < std::ssize(kinds) ? kinds[code] : "type ",
       code < std::ssize(kinds) ? bits : code, lanes == 1 ? "" : concat(" x ", lanes),
       "; it takes f64, f32, f16, bf16, i64, i32 and u8");
}

/// Owns an exported struct and its tensor.
template <class Managed, class Dev>
struct Export {
  Managed managed{};
  Tensor<Dev> tensor;
  std::array<std::int64_t, Shape::max_rank> shape{}, strides{};
};

}  // namespace dlpack

/// Exports a tensor to another library, which must call the deleter in the end, on any thread. If the elements have
/// other owners (share()), the export is read-only, which a DLManagedTensor cannot express.
template <class Managed = dlpack::DLManagedTensorVersioned, class Dev>
  requires(detail::has_data<Dev>)
[[nodiscard]] Managed* to_dlpack(const Dev& dev, Tensor<Dev> tensor) {
  using Export = dlpack::Export<Managed, Dev>;
  check(!tensor.empty(), "to_dlpack: there is no tensor");
  auto result = std::make_unique<Export>();
  result->tensor = std::move(tensor);
  const auto& from = result->tensor;
  const int rank = from.shape().rank();
  for (int dim = rank; dim-- > 0;) {
    const auto at = detail::as_size(dim);
    result->shape[at] = from.shape()[dim];
    result->strides[at] = dim == rank - 1 ? 1 : result->strides[at + 1] * result->shape[at + 1];
  }
  auto& out = result->managed.dl_tensor;
  out.data = const_cast<std::byte*>(from.view().bytes());
  using DeviceType = decltype(out.device.device_type);
  out.device.device_type =
      static_cast<DeviceType>(Dev::host_accessible ? dlpack::cpu : dlpack::cuda);
  if constexpr (!Dev::host_accessible) out.device.device_id = dev.number();
  out.ndim = rank;
  for (const auto& one : dlpack::elements)
    if (one.type == from.dtype()) out.dtype = {one.code, one.bits, 1};
  out.shape = result->shape.data();
  out.strides = result->strides.data();
  if constexpr (requires { result->managed.version; }) {
    result->managed.version = {1, 0};
    result->managed.flags = from.unique() ? 0 : dlpack::read_only;
  }
  result->managed.manager_ctx = reinterpret_cast<decltype(Managed::manager_ctx)>(result.get());
  result->managed.deleter = [](Managed* managed) {
    delete reinterpret_cast<Export*>(managed->manager_ctx);
  };
  return &result.release()->managed;
}

/// Imports another library's row-major tensor on this device; the last owner calls the struct's deleter. Read-only
/// elements cannot be written (Tensor::mut). If this function throws, the caller keeps the struct.
template <class Dev, class Managed>
  requires(detail::has_data<Dev>)
[[nodiscard]] Tensor<Dev> from_dlpack(Dev& dev, Managed* managed) {
  check(managed != nullptr, "from_dlpack: there is no tensor");
  bool writable = true;
  if constexpr (requires { managed->version; }) {
    check(managed->version.major == 1, "from_dlpack: the tensor has version ",
          managed->version.major, ".", managed->version.minor,
          " of DLPack; ask for 1.0, as __dlpack__(max_version=(1, 0)) does");
    writable = (managed->flags & dlpack::read_only) == 0;
  }
  const auto& from = managed->dl_tensor;
  const auto kind = static_cast<std::int32_t>(from.device.device_type);
  if constexpr (Dev::host_accessible) {
    check(kind == dlpack::cpu || kind == dlpack::cuda_host || kind == dlpack::cuda_managed,
          "from_dlpack: the tensor is on a device of type ", kind,
          ", not in the host's memory; move it there first");
  } else {
    check((kind == dlpack::cuda && from.device.device_id == dev.number()) ||
              kind == dlpack::cuda_managed,
          "from_dlpack: the tensor is on device ", from.device.device_id, " of type ", kind,
          ", not on GPU ", dev.number(), "; move it there first");
  }
  const auto type = dlpack::dtype_of(from.dtype.code, from.dtype.bits, from.dtype.lanes);
  check(from.ndim >= 0 && from.ndim <= Shape::max_rank, "from_dlpack: a tensor of ", from.ndim,
        " dims; dhp's have at most ", Shape::max_rank);
  Shape shape;
  for (int dim = 0; dim < from.ndim; ++dim) shape.push_back(from.shape[dim]);
  std::int64_t stride = 1;
  for (int dim = from.ndim; from.strides != nullptr && shape.count() > 0 && dim-- > 0;) {
    check(shape[dim] == 1 || from.strides[dim] == stride, "from_dlpack: dim ", dim, " of a tensor ",
          shape, " has stride ", from.strides[dim], ", and ", stride,
          " in row-major order; copy it first (numpy.ascontiguousarray, torch's contiguous())");
    stride *= shape[dim];
  }
  const auto release = [managed](const std::byte*) {
    if (managed->deleter != nullptr) managed->deleter(managed);
  };
  if (shape.count() == 0) {  // the pointer may be null
    Tensor<Dev> none(dev, type, shape);
    release(nullptr);
    return none;
  }
  auto* const data = static_cast<std::byte*>(from.data) + from.byte_offset;
  check(reinterpret_cast<std::uintptr_t>(data) % size_of(type) == 0,
        "from_dlpack: the elements of ", type, " are not aligned to their size; copy them first");
  if (writable) return Tensor<Dev>(std::shared_ptr<std::byte>(data, release), type, shape);
  return Tensor<Dev>(std::shared_ptr<const std::byte>(data, release), type, shape);
}

}  // namespace dhp
