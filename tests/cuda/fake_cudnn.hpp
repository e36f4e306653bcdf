// cuDNN's graph API beside a fake of CUDA's runtime: it proposes a few engines, numbered from 0, for every graph. What
// an engine says when it is to run is for the test to say. For one program without CUDA's libraries.
#pragma once

#include <tests/cuda/fake_cuda.hpp>

#include <cudnn_backend.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace fake {

inline constexpr int engines = 3;
/// What an engine answers when it is to run, and those that were asked. Empty: it runs.
inline std::function<cudnnStatus_t(int engine)> engine_runs;
inline std::vector<int> engines_asked;
/// The arguments' addresses in each of these runs.
inline std::vector<std::vector<void*>> addresses_asked;
/// Whether making a plan compiles it; called where that is so. Plans that do are also made from their text.
inline std::function<void(int engine)> engine_compiles;
inline std::atomic<int> compilations, plans_read, heuristics_asked;
/// A text of another version is refused.
inline std::string text_version = "1";

struct Descriptor {
  int engine = 0;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  cudnnBackendDescriptorType_t type{};
  bool has_handle = false, has_device = false;
  std::string text{};
  std::vector<void*> addresses{};

  [[nodiscard]] std::string to_text() const {
    return "{\"version\":" + text_version + ",\"engine\":" + std::to_string(engine) + "}";
  }
  cudnnStatus_t finalize() {
    if (type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) ++heuristics_asked;
    if (type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !engine_compiles)
      return CUDNN_STATUS_SUCCESS;
    if (has_handle == has_device) return CUDNN_STATUS_BAD_PARAM;
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
inline Descriptor& of(cudnnBackendDescriptor_t raw) { return *static_cast<Descriptor*>(raw); }

}  // namespace fake

extern "C" {
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  return *made = new fake::Descriptor{.type = type}, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t old) {
  return delete &fake::of(old), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t raw) {
  return fake::of(raw).finalize();
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t count,
                                       const void* values) {
  auto& to = fake::of(raw);
  if (name == CUDNN_ATTR_ENGINEHEUR_MODE)
    to.mode = *static_cast<const cudnnBackendHeurMode_t*>(values);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    to.engine = fake::of(*static_cast<const cudnnBackendDescriptor_t*>(values)).engine;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) to.has_handle = true;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) to.has_device = true;
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
    to.addresses.assign(static_cast<void* const*>(values),
                        static_cast<void* const*>(values) + count);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION)
    to.text.assign(static_cast<const char*>(values), static_cast<std::size_t>(count));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t most, int64_t* count,
                                       void* values) {
  const auto& asked = fake::of(raw);
  auto* const made = static_cast<cudnnBackendDescriptor_t*>(values);
  *count = 0;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && asked.mode == CUDNN_HEUR_MODE_A)
    for (; *count < most && *count < fake::engines; ++*count)
      fake::of(made[*count]).engine = static_cast<int>(*count);
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE) fake::of(made[(*count)++]).engine = asked.engine;
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
    static_cast<std::int64_t*>(values)[(*count)++] = asked.engine;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    static_cast<std::int64_t*>(values)[(*count)++] = 0;
  if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && fake::engine_compiles)
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
  // Compiled for a description alone, it is not yet a plan of the handle.
  if (fake::engine_compiles && !asked.has_handle) return CUDNN_STATUS_BAD_PARAM;
  fake::engines_asked.push_back(asked.engine);
  fake::addresses_asked.push_back(fake::of(pack).addresses);
  return fake::engine_runs ? fake::engine_runs(asked.engine) : CUDNN_STATUS_SUCCESS;
}
}
