// cuDNN's graph API beside a fake of CUDA's runtime: it proposes a few engines, numbered from 0, for every graph. What
// an engine says when it is to run is for the test to say. For one program without CUDA's libraries.
#pragma once

#include <tests/cuda/fake_cuda.hpp>

#include <cudnn_backend.h>

#include <functional>
#include <vector>

namespace fake {

inline constexpr int engines = 3;
/// What an engine answers when it is to run, and those that were asked. Empty: it runs.
inline std::function<cudnnStatus_t(int engine)> engine_runs;
inline std::vector<int> engines_asked;

struct Descriptor {
  int engine = 0;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
};
inline Descriptor& of(cudnnBackendDescriptor_t raw) { return *static_cast<Descriptor*>(raw); }

}  // namespace fake

extern "C" {
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t,
                                           cudnnBackendDescriptor_t* made) {
  return *made = new fake::Descriptor, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t old) {
  return delete &fake::of(old), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t, const void* values) {
  if (name == CUDNN_ATTR_ENGINEHEUR_MODE)
    fake::of(raw).mode = *static_cast<const cudnnBackendHeurMode_t*>(values);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    fake::of(raw).engine = fake::of(*static_cast<const cudnnBackendDescriptor_t*>(values)).engine;
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
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t) {
  const int engine = fake::of(plan).engine;
  fake::engines_asked.push_back(engine);
  return fake::engine_runs ? fake::engine_runs(engine) : CUDNN_STATUS_SUCCESS;
}
}
