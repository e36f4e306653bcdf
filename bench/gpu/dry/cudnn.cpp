// cuDNN's graph API for a dry run: a graph moves each of its tensors that is no intermediate once, and what a batch
// norm sums up once more, since the sums of all rows come before the first result.
#include "ledger.hpp"

#include <cudnn.h>
#include <cudnn_backend.h>

#include <array>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

namespace {

struct Node {
  cudnnBackendDescriptorType_t type{};
  std::map<cudnnBackendAttributeName_t, std::vector<std::int64_t>> numbers{};
  std::map<cudnnBackendAttributeName_t, std::vector<std::shared_ptr<Node>>> nodes{};

  [[nodiscard]] std::int64_t number(cudnnBackendAttributeName_t name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? 0 : found->second.front();
  }
  [[nodiscard]] const Node& node(cudnnBackendAttributeName_t name) const {
    return *nodes.at(name).front();
  }
  [[nodiscard]] const std::vector<std::int64_t>& extents() const {
    return numbers.at(CUDNN_ATTR_TENSOR_DIMENSIONS);
  }
  /// Of a tensor.
  [[nodiscard]] double count() const {
    double product = 1;
    for (const auto extent : extents()) product *= static_cast<double>(extent);
    return product;
  }
  [[nodiscard]] double bytes() const {
    switch (number(CUDNN_ATTR_TENSOR_DATA_TYPE)) {
      case CUDNN_DATA_BOOLEAN: return count() / 8;
      case CUDNN_DATA_DOUBLE:
      case CUDNN_DATA_INT64: return 8 * count();
      case CUDNN_DATA_FLOAT:
      case CUDNN_DATA_INT32: return 4 * count();
      case CUDNN_DATA_UINT8: return count();
      default: return 2 * count();
    }
  }
};

/// What a descriptor stands for; those of it may go while others refer to it.
using Handle = std::shared_ptr<Node>;
Handle& of(cudnnBackendDescriptor_t raw) { return *static_cast<Handle*>(raw); }

double flop_of(const Node& operation) {
  const auto convolution = [&](auto y, auto w) {
    const auto& filter = operation.node(w).extents();  // O, C, K, K
    return 2 * operation.node(y).count() * static_cast<double>(filter[1] * filter[2] * filter[3]);
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
      return 2 * operation.node(CUDNN_ATTR_OPERATION_MATMUL_CDESC).count() *
             static_cast<double>(operation.node(CUDNN_ATTR_OPERATION_MATMUL_ADESC).extents()[3]);
    default: return 0;
  }
}

/// Bytes of a tensor in memory; of an intermediate one those of what it is computed from.
double bytes_behind(const Node& tensor, const std::vector<Handle>& operations) {
  if (tensor.number(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0) return 0;
  if (tensor.number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) == 0) return tensor.bytes();
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

/// What the second pass of a batch norm reads again.
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

/// What an input gradient is added to.
double read_before(const std::vector<Handle>& operations) {
  double bytes = 0;
  for (const auto& operation : operations)
    if (operation->number(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA) != 0)
      bytes += operation->node(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX).bytes();
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

std::vector<Handle> operations_of(const Node& plan) {
  return plan.node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
      .node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
      .nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

void write_down(const std::vector<Handle>& operations) {
  std::map<std::int64_t, double>
      tensors;  // bytes by number: one that several operations use counts once
  double flop = 0;
  const auto add = [&](const Node& tensor) {
    if (tensor.type != CUDNN_BACKEND_TENSOR_DESCRIPTOR ||
        tensor.number(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0 ||
        tensor.number(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0)
      return;
    const bool packed = tensor.nodes.contains(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
    tensors[tensor.number(CUDNN_ATTR_TENSOR_UNIQUE_ID)] =
        tensor.bytes() * (packed ? dry::ledger().attention_rows : 1);
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
  auto& ledger = dry::ledger();
  ledger.add(std::move(name), bytes, flop * (attention ? ledger.attention_pairs : 1));
}

}  // namespace

extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t* made) {
  return *made = reinterpret_cast<cudnnHandle_t>(new Node), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t old) {
  return delete reinterpret_cast<Node*>(old), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error"; }
void cudnnGetLastErrorString(char* said, size_t) { said[0] = 0; }
size_t cudnnGetVersion() { return CUDNN_VERSION; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  return *made = new Handle(std::make_shared<Node>(Node{.type = type})), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t old) {
  return delete &of(old), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  auto& node = *of(raw);
  for (int64_t at = 0; at < count; ++at) switch (type) {
      case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        node.nodes[name].push_back(of(static_cast<const cudnnBackendDescriptor_t*>(values)[at]));
        break;
      case CUDNN_TYPE_INT64:
        node.numbers[name].push_back(static_cast<const std::int64_t*>(values)[at]);
        break;
      case CUDNN_TYPE_BOOLEAN:
        node.numbers[name].push_back(static_cast<const bool*>(values)[at] ? 1 : 0);
        break;
      case CUDNN_TYPE_DATA_TYPE:
        node.numbers[name].push_back(static_cast<const cudnnDataType_t*>(values)[at]);
        break;
      case CUDNN_TYPE_FLOAT:  // of a convolution's beta only whether it is 0
        node.numbers[name].push_back(static_cast<const float*>(values)[at] != 0 ? 1 : 0);
        break;
      case CUDNN_TYPE_HEUR_MODE:
        node.numbers[name].push_back(static_cast<const cudnnBackendHeurMode_t*>(values)[at]);
        break;
      default: break;
    }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t, int64_t* count,
                                       void* values) {
  const auto& asked = *of(raw);
  *count = 0;
  const auto refused = [&] {  // attention, so that its own kernels do it
    const auto& graph = asked.node(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    return std::getenv("DHP_DRY_OWN_ATTENTION") != nullptr &&
           name_of(graph.nodes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)).find("attention") !=
               std::string::npos;
  };
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
      asked.number(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A && !refused()) {
    auto& config = *of(static_cast<cudnnBackendDescriptor_t*>(values)[0]);
    config.nodes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
        asked.nodes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    *count = 1;
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) *count = 1;
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX || name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    static_cast<std::int64_t*>(values)[(*count)++] = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t) {
  write_down(operations_of(*of(plan)));
  return CUDNN_STATUS_SUCCESS;
}
}
