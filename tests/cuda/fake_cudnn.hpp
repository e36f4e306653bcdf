// A fake of cuDNN's graph API over the fake CUDA runtime. It proposes a few engines, numbered from 0, for every graph.
// The test sets the result of running an engine. For a program without CUDA's libraries.
#pragma once

#include <dhp/core/types.hpp>
#include <tests/cuda/fake_cuda.hpp>

#include <cudnn_backend.h>

#include <string>

namespace fake {

inline int engines = 3;
inline int first_precompiled = 1000;  ///< the first engine whose plans are not compiled
/// The engines that ran, and the arguments' addresses in each run.
inline std::vector<int> engines_asked;
inline std::vector<std::vector<void*>> addresses_asked;
/// If set, making a plan calls this to compile it, and plans can be made from their text.
inline std::function<void(int engine)> engine_compiles;
inline std::atomic<int> compilations, plans_read, heuristics_asked;
/// A text with another version is refused.
inline std::string text_version = "1";

/// The attributes that were set, by name. Numbers and other descriptors are in maps, all else in members.
struct Descriptor {
  using Name = cudnnBackendAttributeName_t;
  cudnnBackendDescriptorType_t type{};
  std::map<Name, std::vector<std::int64_t>> numbers{};
  std::map<Name, std::vector<std::shared_ptr<Descriptor>>> nodes{};
  int engine = 0;
  std::string text{};
  std::vector<void*> addresses{};

  /// Returns 0 if the attribute was not set.
  [[nodiscard]] std::int64_t number(Name name) const {
    const auto found = numbers.find(name);
    return found == numbers.end() ? 0 : found->second.front();
  }
  [[nodiscard]] const Descriptor& node(Name name) const { return *nodes.at(name).front(); }
  [[nodiscard]] bool has_handle() const {
    return numbers.contains(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  }
  [[nodiscard]] std::string to_text() const {
    return "{\"version\":" + text_version + ",\"engine\":" + std::to_string(engine) + "}";
  }
  cudnnStatus_t finalize() {
    if (type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) ++heuristics_asked;
    if (nodes.contains(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG))
      engine = node(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine;
    if (type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !engine_compiles)
      return CUDNN_STATUS_SUCCESS;
    if (has_handle() == nodes.contains(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
      return CUDNN_STATUS_BAD_PARAM;
    if (text.empty()) {
      ++compilations;
      engine_compiles(engine);
      return CUDNN_STATUS_SUCCESS;
    }
    for (engine = 0; engine < engines; ++engine)
      if (text == to_text()) return ++plans_read, CUDNN_STATUS_SUCCESS;
    return CUDNN_STATUS_BAD_PARAM;
  }
};
/// proposes: whether the heuristics propose this engine. plan_runs: the status of running a plan. Empty: yes, and
/// success.
inline std::function<bool(int engine, const Descriptor& asked)> proposes;
inline std::function<cudnnStatus_t(const Descriptor& plan)> plan_runs;

/// Shared, because a descriptor may be destroyed while others refer to it.
using Handle = std::shared_ptr<Descriptor>;
inline Handle& handle_of(cudnnBackendDescriptor_t raw) { return *static_cast<Handle*>(raw); }
inline Descriptor& of(cudnnBackendDescriptor_t raw) { return *handle_of(raw); }

}  // namespace fake

extern "C" {
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* result) {
  return *result = new fake::Handle(new fake::Descriptor{.type = type}), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t old) {
  return delete &fake::handle_of(old), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t raw) {
  return fake::of(raw).finalize();
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  auto& to = fake::of(raw);
  const auto keep = [&]<class T>(dhp::TypeTag<T>) {
    const auto* const first = static_cast<const T*>(values);
    to.numbers[name].assign(first, first + count);
  };
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
    to.addresses.assign(static_cast<void* const*>(values),
                        static_cast<void* const*>(values) + count);
  switch (type) {
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      for (int64_t at = 0; at < count; ++at)
        to.nodes[name].push_back(
            fake::handle_of(static_cast<const cudnnBackendDescriptor_t*>(values)[at]));
      break;
    case CUDNN_TYPE_CHAR:
      to.text.assign(static_cast<const char*>(values), static_cast<std::size_t>(count));
      break;
    case CUDNN_TYPE_INT64: keep(dhp::TypeTag<std::int64_t>()); break;
    case CUDNN_TYPE_BOOLEAN: keep(dhp::TypeTag<bool>()); break;
    case CUDNN_TYPE_DATA_TYPE: keep(dhp::TypeTag<cudnnDataType_t>()); break;
    case CUDNN_TYPE_HEUR_MODE: keep(dhp::TypeTag<cudnnBackendHeurMode_t>()); break;
    case CUDNN_TYPE_FLOAT:  // beta of a convolution: 0 or not
      to.numbers[name] = {*static_cast<const float*>(values) != 0};
      break;
    default: to.numbers[name] = {1}; break;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t* count,
                                       void* values) {
  const auto& asked = fake::of(raw);
  auto* const result = static_cast<cudnnBackendDescriptor_t*>(values);
  *count = 0;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
      asked.number(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A)
    for (int engine = 0; engine < fake::engines && *count < most; ++engine) {
      if (fake::proposes && !fake::proposes(engine, asked)) continue;
      auto& config = fake::of(result[(*count)++]);
      config.engine = engine;
      config.nodes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
          asked.nodes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) fake::of(result[(*count)++]).engine = asked.engine;
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
    static_cast<std::int64_t*>(values)[(*count)++] = asked.engine;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    static_cast<std::int64_t*>(values)[(*count)++] = 0;
  if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && fake::engine_compiles &&
      asked.engine < fake::first_precompiled)
    static_cast<cudnnBackendBehaviorNote_t*>(values)[(*count)++] =
        CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
    if (!fake::engine_compiles) return CUDNN_STATUS_NOT_SUPPORTED;
    const auto text = asked.to_text();
    *count = static_cast<std::int64_t>(text.size());
    std::copy_n(text.begin(), std::min(most, *count), static_cast<char*>(values));
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const auto& asked = fake::of(plan);
  // A plan compiled for a description needs a handle before it can run.
  if (fake::engine_compiles && !asked.has_handle()) return CUDNN_STATUS_BAD_PARAM;
  fake::engines_asked.push_back(asked.engine);
  fake::addresses_asked.push_back(fake::of(pack).addresses);
  return fake::plan_runs ? fake::plan_runs(asked) : CUDNN_STATUS_SUCCESS;
}
}
