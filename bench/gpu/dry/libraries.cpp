// CUDA's libraries for a dry run: fakes that compute nothing and write each call into the ledger, with the bytes and
// FLOP of its descriptors. They accept every call and offer one algorithm each, so that nothing is timed. A graph of
// cuDNN moves each non-intermediate tensor once. It reads the input of a batch norm's sums once more, since the sums
// over all rows precede the first result.
#include <tests/cuda/fake_cublas.hpp>
#include <tests/cuda/fake_cudnn.hpp>

#include "ledger.hpp"

#include <cstring>
#include <map>
#include <vector>

namespace dry {
namespace {

using fake::Descriptor, fake::Handle;

const char* name_of(std::uint32_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS: return "product + bias";
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: return "product + bias + GELU";
    case CUBLASLT_EPILOGUE_DGELU: return "product + GELU's gradient";
    case CUBLASLT_EPILOGUE_DGELU_BGRAD: return "product + gradients of GELU and bias";
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB: return "product + bias gradient";
    case CUBLASLT_EPILOGUE_DEFAULT: return "product";
    default: return "product + another epilogue";
  }
}
double bytes_of(const fake::Layout& matrix) {
  const double element = matrix.type == CUDA_R_64F ? 8 : matrix.type == CUDA_R_32F ? 4 : 2;
  return static_cast<double>(matrix.rows * matrix.columns) * element;
}

void add_product(const fake::ProductKind& kind, const fake::Layout& left, const fake::Layout& right,
                 const fake::Layout& c, bool adds) {
  const auto depth = kind.transposed[0] ? left.rows : left.columns;
  const bool has_aux =
      (kind.epilogue & 128) != 0;  // forward writes an auxiliary matrix like c, backward reads it
  ledger().add(std::string("cuBLASLt ") + name_of(kind.epilogue),
               bytes_of(left) + bytes_of(right) + bytes_of(c) * (1 + adds + has_aux),
               2 * static_cast<double>(c.rows * c.columns) * static_cast<double>(depth));
}

const std::vector<std::int64_t>& extents(const Descriptor& tensor) {
  return tensor.numbers.at(CUDNN_ATTR_TENSOR_DIMENSIONS);
}
double elements(const Descriptor& tensor) {
  double product = 1;
  for (const auto extent : extents(tensor)) product *= static_cast<double>(extent);
  return product;
}
double bytes_of(const Descriptor& tensor) {
  switch (tensor.number(CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_BOOLEAN: return elements(tensor) / 8;
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64: return 8 * elements(tensor);
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32: return 4 * elements(tensor);
    case CUDNN_DATA_UINT8: return elements(tensor);
    default: return 2 * elements(tensor);
  }
}

double flop_of(const Descriptor& operation) {
  const auto convolution = [&](auto y, auto w) {
    const auto& filter = extents(operation.node(w));  // O, C, K, K
    return 2 * elements(operation.node(y)) * static_cast<double>(filter[1] * filter[2] * filter[3]);
  };
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return convolution(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return 2 * elements(operation.node(CUDNN_ATTR_OPERATION_MATMUL_CDESC)) *
             static_cast<double>(extents(operation.node(CUDNN_ATTR_OPERATION_MATMUL_ADESC))[3]);
    default: return 0;
  }
}

/// Returns the bytes of a tensor in memory; for an intermediate tensor, those of the tensors it is computed from.
double bytes_behind(const Descriptor& tensor, const std::vector<Handle>& operations) {
  if (tensor.number(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0) return 0;
  if (tensor.number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) == 0) return bytes_of(tensor);
  double bytes = 0;
  for (const auto& operation : operations) {
    if (operation->type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
        &operation->node(CUDNN_ATTR_OPERATION_POINTWISE_YDESC) != &tensor)
      continue;
    for (const auto name :
         {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC})
      if (operation->nodes.contains(name)) bytes += bytes_behind(operation->node(name), operations);
  }
  return bytes;
}

/// Returns the bytes that the second pass of a batch norm reads again.
double second_pass(const std::vector<Handle>& operations) {
  double bytes = 0;
  for (const auto& operation : operations) {
    if (operation->type == CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
      bytes += bytes_behind(operation->node(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC), operations);
    if (operation->type == CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
      bytes += bytes_behind(operation->node(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC), operations) +
               bytes_behind(operation->node(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC), operations);
  }
  return bytes;
}

/// Returns the bytes of input gradients that are added to.
double read_before(const std::vector<Handle>& operations) {
  double bytes = 0;
  for (const auto& operation : operations)
    if (operation->number(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA) != 0)
      bytes += bytes_of(operation->node(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX));
  return bytes;
}

std::string name_of(const std::vector<Handle>& operations) {
  std::map<cudnnBackendDescriptorType_t, int> count;
  for (const auto& operation : operations) ++count[operation->type];
  const auto has = [&](cudnnBackendDescriptorType_t type) { return count.contains(type); };
  std::string name = "cuDNN";
  if (has(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)) name += " convolution";
  if (has(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR))
    name += " convolution's input gradient";
  if (read_before(operations) > 0) name += ", added";
  if (has(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR))
    name += " convolution's weight gradient";
  if (has(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)) name += " batch norm";
  if (has(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)) name += " batch norm's gradient";
  if (has(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)) name += " + statistics";
  if (has(CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR)) name += " statistics' end";
  if (has(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR)) name += " + batch norm's weights";
  const int products = count[CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR];
  if (products == 2) name += " attention";
  if (products > 2) name += " attention's gradient";
  if (has(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) && products == 0) name += " + pointwise";
  return name;
}

void add_graph(const std::vector<Handle>& operations) {
  // Bytes by tensor number, so that a tensor of several operations counts once.
  std::map<std::int64_t, double> tensors;
  double flop = 0;
  const auto add = [&](const Descriptor& tensor) {
    if (tensor.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR ||
        tensor.number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0 ||
        tensor.number(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0)
      return;
    const bool packed = tensor.nodes.contains(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
    tensors[tensor.number(CUDNN_ATTR_TENSOR_UNIQUE_ID)] =
        bytes_of(tensor) * (packed ? ledger().attention_rows : 1);
  };
  for (const auto& operation : operations) {
    flop += flop_of(*operation);
    for (const auto& [name, nodes] : operation->nodes)
      for (const auto& node : nodes) add(*node);
  }
  auto name = name_of(operations);
  const bool attention = name.find("attention") != std::string::npos;
  double bytes = second_pass(operations) + read_before(operations);
  for (const auto& [uid, size] : tensors) bytes += size;
  auto& book = ledger();
  book.add(std::move(name), bytes, flop * (attention ? book.attention_pairs : 1));
}

/// Records a copy. Small tensors, which the host reads back, such as losses, have memory; others only addresses.
void add_copy(void* to, const void* from, std::size_t bytes) {
  const bool reads = ledger().tensor_of(from) != nullptr,
             writes = ledger().tensor_of(to) != nullptr;
  const char* const copy = reads && writes ? "copy"
                           : reads         ? "copy to the host"
                                           : "copy from the host";
  ledger().add(from == nullptr ? "fill with zeros" : copy,
               static_cast<double>(bytes) * (reads + writes));
  if (bytes > 1 << 16) return;
  if (from == nullptr) std::memset(to, 0, bytes);
  else std::memcpy(to, from, bytes);
}

const std::vector<Handle>& operations_of(const Descriptor& asked) {
  return asked.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

}  // namespace

void begin() {
  fake::gpu_memory.total = std::size_t{139} << 30;
  fake::instead_of_copy = add_copy;
  fake::seems_to = [](int algorithm, const fake::ProductSize&) { return algorithm == 0; };
  fake::instead_of_product = add_product;
  fake::proposes = [](int engine, const Descriptor&) { return engine == 0; };
  fake::plan_runs = [](const Descriptor& plan) {
    add_graph(operations_of(plan.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)));
    return CUDNN_STATUS_SUCCESS;
  };
}

}  // namespace dry
