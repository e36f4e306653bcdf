// Plans: cuDNN's engines for a graph on a device, filtered by rules, then compiled to run. With a description of a
// device, everything except running works without a GPU.
#pragma once

#include <dhp/cuda/cudnn_graph.hpp>

#include <algorithm>
#include <cstddef>

namespace dhp::detail::cuda {

/// The target of a graph: a handle's device, or a described device.
class CudnnTarget {
 public:
  explicit CudnnTarget(cudnnHandle_t handle) : handle_(handle) {}
  /// json: a device description by cuDNN (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
  explicit CudnnTarget(const std::string& json)
      : CudnnTarget(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                    std::vector(json.begin(), json.end())) {}
  /// Describes the handle's device. Several threads may use a description at the same time, but not a handle.
  [[nodiscard]] static CudnnTarget described(cudnnHandle_t handle) {
    return {CUDNN_ATTR_DEVICEPROP_HANDLE, handle};
  }
  [[nodiscard]] cudnnHandle_t handle() const { return handle_; }
  [[nodiscard]] const std::optional<CudnnDescriptor>& device() const { return device_; }

 private:
  CudnnTarget(cudnnBackendAttributeName_t name, const auto& value)
      : device_(CudnnDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
                    .set(name, value)
                    .finalize("a description of a device for cuDNN")) {}

  cudnnHandle_t handle_ = nullptr;
  std::optional<CudnnDescriptor> device_;
};

struct CudnnRules {
  bool deterministic = false;   ///< the same bits in every run
  bool full_precision = false;  ///< no TF32 for f32
  std::size_t workspace_bytes = std::size_t{1} << 30;
};

/// Returns whether the rules allow an engine with these notes. They never allow less accuracy than f32 sums.
[[nodiscard]] inline bool allowed(const std::vector<cudnnBackendNumericalNote_t>& notes,
                                  const CudnnRules& rules) {
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return rules.deterministic;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return rules.full_precision;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
      default: return false;
    }
  });
}

/// A candidate: an engine and its settings (knobs).
class CudnnCandidate {
 public:
  explicit CudnnCandidate(CudnnDescriptor config) : config_(std::move(config)) {}
  [[nodiscard]] const CudnnDescriptor& config() const { return config_; }

  [[nodiscard]] std::vector<cudnnBackendNumericalNote_t> notes() const {
    return engine().get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  }
  /// Returns whether making the candidate's plan compiles a kernel, which takes about a second.
  [[nodiscard]] bool compiles() const {
    const auto notes = engine().get_all<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                                                    CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
    return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) !=
           notes.end();
  }
  /// Returns a name that is unique for a graph, device and cuDNN version: engine, then knob:value, as in "3 2:1 14:5".
  [[nodiscard]] std::string name() const {
    std::string out = concat(engine().get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    for (const auto& choice :
         config_.get_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS))
      out += concat(
          " ",
          static_cast<int>(choice.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)),
          ":", choice.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    return out;
  }

 private:
  [[nodiscard]] CudnnDescriptor engine() const {
    auto found =
        config_.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    check(!found.empty(), "an engine configuration of cuDNN names no engine");
    return std::move(found.front());
  }
  CudnnDescriptor config_;
};

/// Returns cuDNN's proposals that `rules` allow, favorites first; possibly none.
[[nodiscard]] inline std::vector<CudnnCandidate> candidates(const CudnnGraph& graph,
                                                            const CudnnTarget& target,
                                                            const CudnnRules& rules) {
  CudnnDescriptor operations(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  operations.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, graph.operations());
  if (target.handle() != nullptr) operations.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle());
  std::vector<CudnnCandidate> found;
  if (cudnnBackendFinalize(operations.raw()) != CUDNN_STATUS_SUCCESS) return found;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    if (target.device()) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device());
    // A heuristic mode may not support such graphs; this is no error.
    if (cudnnBackendFinalize(heuristics.raw()) != CUDNN_STATUS_SUCCESS) continue;
    constexpr std::int64_t most = 64;
    for (auto& config : heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                   CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, most)) {
      CudnnCandidate candidate(std::move(config));
      if (allowed(candidate.notes(), rules)) found.push_back(std::move(candidate));
    }
  }
  return found;
}

/// The addresses of a plan's arguments, by uid.
struct CudnnArguments {
  struct Argument {
    std::int64_t uid;
    std::byte* address;
    std::size_t updated_bytes;
  };
  std::vector<Argument> all;

  /// updated_bytes: the size of an argument that the plan reads and writes; timing a plan uses other memory for it.
  CudnnArguments& add(std::int64_t uid, const std::byte* address, std::size_t updated_bytes = 0) {
    // cuDNN takes inputs and outputs as one list of void*.
    all.push_back({uid, const_cast<std::byte*>(address), updated_bytes});
    return *this;
  }
  /// Replaces the addresses of updated arguments; allocate(bytes) returns an address.
  [[nodiscard]] CudnnArguments with_updated_at(auto allocate) const {
    auto result = *this;
    for (auto& one : result.all)
      if (one.updated_bytes > 0) one.address = allocate(one.updated_bytes);
    return result;
  }
  /// Returns the smallest alignment of all addresses, in bytes, at most 16.
  [[nodiscard]] std::int64_t alignment() const {
    std::uintptr_t bits = 16;
    for (const auto& one : all) bits |= reinterpret_cast<std::uintptr_t>(one.address);
    return static_cast<std::int64_t>(bits & (~bits + 1));
  }
};

/// Returns whether a cuDNN error says that a plan does not support its arguments. In this case nothing has run.
[[nodiscard]] inline bool is_unsupported(const CudaError& error) {
  constexpr int family = 1000;
  return error.code() / family == CUDNN_STATUS_NOT_SUPPORTED / family;
}

/// A compiled graph. It keeps only the constants of the CudnnGraph.
class CudnnPlan {
 public:
  /// Returns nullopt if the engine fails to compile or needs too much memory.
  [[nodiscard]] static std::optional<CudnnPlan> make(const CudnnGraph& graph,
                                                     const CudnnTarget& target,
                                                     const CudnnCandidate& candidate,
                                                     const CudnnRules& rules) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config());
    return finalized(std::move(plan), graph, target, rules);
  }
  /// Makes a plan without compiling, from text() of the same graph, candidate, cuDNN version and kind of GPU. Returns
  /// nullopt if cuDNN refuses it. The text must be undamaged: cuDNN does not check the kernel in it.
  [[nodiscard]] static std::optional<CudnnPlan> from_text(const CudnnGraph& graph,
                                                          const CudnnTarget& target,
                                                          const std::string& text,
                                                          const CudnnRules& rules) {
    CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    try {
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
               std::vector(text.begin(), text.end()));
    } catch (const CudaError&) {
      return {};
    }
    return finalized(std::move(plan), graph, target, rules);
  }
  /// Returns JSON with the compiled kernel; empty if the engine has none.
  [[nodiscard]] std::string text() const {
    return plan_.get_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  }
  [[nodiscard]] std::size_t workspace_bytes() const { return workspace_bytes_; }

  /// Issues the plan on the handle's stream. workspace: workspace_bytes() bytes, 16-byte aligned. Some plans report
  /// only here that they do not support the arguments (is_unsupported).
  void run(cudnnHandle_t handle, CudnnArguments arguments, std::byte* workspace) const {
    for (const auto& scalar : scalars_)
      arguments.add(scalar.uid, reinterpret_cast<const std::byte*>(&scalar.value));
    std::vector<std::int64_t> uids;
    std::vector<std::byte*> addresses;
    for (const auto& one : arguments.all) {
      uids.push_back(one.uid);
      addresses.push_back(one.address);
    }
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, addresses)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
        .finalize("the arguments of a plan of cuDNN");
    check_cudnn(cudnnBackendExecute(handle, plan_.raw(), pack.raw()), "cudnnBackendExecute");
  }

 private:
  [[nodiscard]] static std::optional<CudnnPlan> finalized(CudnnDescriptor plan,
                                                          const CudnnGraph& graph,
                                                          const CudnnTarget& target,
                                                          const CudnnRules& rules) {
    if (target.handle() != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle());
    else plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.device());
    if (cudnnBackendFinalize(plan.raw()) != CUDNN_STATUS_SUCCESS) return {};
    const auto bytes = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    if (as_size(bytes) > rules.workspace_bytes) return {};
    return CudnnPlan(std::move(plan), as_size(bytes), graph.scalars());
  }
  CudnnPlan(CudnnDescriptor plan, std::size_t bytes, std::vector<CudnnGraph::Scalar> scalars)
      : plan_(std::move(plan)), workspace_bytes_(bytes), scalars_(std::move(scalars)) {}

  CudnnDescriptor plan_;
  std::size_t workspace_bytes_;
  std::vector<CudnnGraph::Scalar> scalars_;
};

}  // namespace dhp::detail::cuda
