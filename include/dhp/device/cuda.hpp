// Cuda: the GPU of one rank, with its stream, memory, library handles and pinned buffers for copies. This header uses
// only the host API, so that g++ can compile it; dhp/cuda.cuh adds the kernels.
#pragma once

#include <dhp/device/copy_queues.hpp>
#include <dhp/device/cuda_graph.hpp>
#include <dhp/device/cuda_libraries.hpp>
#include <dhp/device/cuda_memory.hpp>
#include <dhp/device/device.hpp>
#include <dhp/device/pinned.hpp>

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <typeindex>
#include <typeinfo>

namespace dhp {

struct CudaOptions {
  int device = -1;  ///< CUDA ordinal in this process; -1: the thread's current device
  /// Size of the pinned ring, the host's copy buffer. Large uploads also need a staging buffer of this size on the GPU.
  std::size_t pinned_bytes = std::size_t{64} << 20;
  std::size_t workspace_bytes = std::size_t{64} << 20;  ///< scratch memory of cuBLASLt
  /// Makes libraries give the same bits in every run and on every GPU of one model: no timed choices, no atomics.
  bool deterministic = false;
  /// Allows TF32 for f32 products and convolutions: inputs are rounded to 11 significant bits, sums stay f32.
  bool tf32 = false;
  /// Lets cuDNN draw the dropout of 16-bit attention. cuDNN's random numbers depend on the micro-batch and on the
  /// tensor axis (docs/numbers.md). Cannot be combined with `deterministic`.
  bool library_dropout = false;
  /// Number of multiprocessors for matrix products while concurrent collectives occupy the others; 0 means all.
  int cublas_sms = 0;
  /// File that caches the fastest algorithms. If empty, the environment variable DHP_PLAN_CACHE names it. A
  /// deterministic device takes algorithms from plan_cache alone and never writes it; all ranks must read the same
  /// file. Compiled plans are kept in a folder with the file's name and the suffix ".plans".
  std::string plan_cache{};
  /// A stream of the host program; nullptr is CUDA's default stream. The stream must outlive the device and its
  /// tensors. If unset, the device creates a stream.
  std::optional<cudaStream_t> stream{};
  /// The host program's allocator. If unset, the device uses cudaMalloc and caches freed blocks.
  CudaAllocator allocator{};
  /// Host threads for initial weights and for compiling cuDNN's plans. 0 means this process's share of the cores: the
  /// number of cores divided by the number of visible GPUs.
  int host_threads = 0;
  std::shared_ptr<Trace> trace{};  ///< the rank's trace; null: do not trace
};

namespace detail {
/// Base of the objects that cuda/ caches per device, such as plans and chosen algorithms.
struct CudaCached : NonCopyable {
  virtual ~CudaCached() = default;
};

/// Returns the number of GPUs that this process can use. Throws Error if there is none.
[[nodiscard]] inline int usable_gpus() {
  int count = 0;
  const auto code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  quietly(code);
  fail("no NVIDIA GPU is usable (",
       code == cudaSuccess ? "none is visible" : cudaGetErrorString(code),
       "); on this machine use a build for the CPU: cmake --preset release");
}

/// The cost of starting to use a GPU. seconds: mostly the loading of kernels, if CUDA_MODULE_LOADING=EAGER. used_bytes:
/// the GPU memory in use afterwards, by all processes.
struct CudaStart {
  double seconds = 0;
  std::size_t used_bytes = 0;
};

/// Waits until the stream has passed an event.
class CudaArrival final : public HostCopy::Arrival {
 public:
  explicit CudaArrival(CudaEvent event) : event_(std::move(event)) {}
  void wait() const override { event_.wait(); }

 private:
  CudaEvent event_;
};
}  // namespace detail

/// The GPU device of one rank. Only one thread at a time may use it, but any thread may free its memory. Like Cpu, it
/// is not movable.
class Cuda : detail::Kernels, detail::NonCopyable {
 public:
  static constexpr bool host_accessible = false;
  static constexpr bool runs_kernels = true;

  /// Initializes a GPU and makes it current for the thread. A process's first call for a GPU is slow. Throws Error.
  [[nodiscard]] static detail::CudaStart begin(int device) {
    const auto from = std::chrono::steady_clock::now();
    const int gpus = detail::usable_gpus();
    check(device < gpus, "no GPU ", device, ": this process sees ", gpus);
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const auto taken = std::chrono::steady_clock::now() - from;
    return {std::chrono::duration<double>(taken).count(), total - free};
  }
  /// Makes the GPU current for the calling thread. Throws Error if the GPU cannot be used.
  explicit Cuda(CudaOptions options = {}) : options_(options) {
    check(!options.deterministic || !options.library_dropout,
          "a deterministic device draws the dropout of attention itself: leave out one of "
          "deterministic and library_dropout");
    const int gpus = detail::usable_gpus();
    int& device = options_.device;
    if (device < 0) check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    check(device < gpus, "no GPU ", device, ": this process sees ", gpus,
          "; see CUDA_VISIBLE_DEVICES");
    detail::check_library_versions();
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    check_cuda(cudaGetDeviceProperties(&properties_, device), "cudaGetDeviceProperties");
    check(properties_.major >= 8, "GPU ", device, " (", properties_.name,
          ") has compute capability ", properties_.major, ".", properties_.minor,
          "; dhp needs 8.0 (Ampere) or later");
    if (options_.host_threads <= 0)
      options_.host_threads =
          std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / gpus);
    stream_ = std::make_unique<detail::CudaStream>(
        options.stream ? detail::CudaStream(*options.stream) : detail::CudaStream());
    memory_ = std::make_shared<detail::CudaMemory>(device, *stream_, options.allocator);
    pinned_ = std::make_unique<detail::PinnedRing>(options.pinned_bytes);
    cublas_ = detail::make_cublas_handle();
    cudnn_ = detail::make_cudnn_handle(stream_->get());
    workspace_ = memory_->allocate(options.workspace_bytes);
    if (options_.trace) clock_.emplace(*options_.trace, stream_->get());
  }
  ~Cuda() { detail::quietly(cudaStreamSynchronize(stream_->get())); }

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    return memory_->allocate(bytes);
  }
  /// Allocates pinned host memory, which kernels can read and write over the bus.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_on_host(std::size_t bytes) {
    return detail::allocate_pinned(bytes);
  }
  [[nodiscard]] std::shared_ptr<std::byte> allocate_persistent(std::size_t bytes) {
    return memory_->allocate_persistent(bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes > 0)
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()),
                 "cudaMemcpyAsync on the GPU");
  }
  /// The caller may change `from` on return. The host waits for the GPU only if the pinned ring is full. A large copy
  /// overlaps with earlier work of the stream.
  void copy_from_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    check_not_recording("a copy from the host");
    for (std::size_t done = 0; done < bytes;) {
      const auto part = std::min(bytes - done, pinned_->largest_bytes());
      std::byte* const piece = pinned_->take(part);
      std::memcpy(piece, from + done, part);
      send(to + done, piece, part);
      pinned_->release(stream());
      done += part;
    }
  }
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    check_not_recording("a copy to the host");
    for (std::size_t done = 0; done < bytes;) {
      const auto part = std::min(bytes - done, pinned_->largest_bytes());
      std::byte* const piece = pinned_->take(part);
      check_cuda(cudaMemcpyAsync(piece, from + done, part, cudaMemcpyDefault, stream()),
                 "cudaMemcpyAsync to the host");
      pinned_->release(stream());
      synchronize();
      std::memcpy(to + done, piece, part);
      done += part;
    }
  }
  [[nodiscard]] HostCopy start_copy_to_host(const std::byte* from, std::size_t bytes) {
    check_not_recording("a copy to the host");
    auto [data, end] = blocks_->start_copy(bytes, [&](std::byte* to) {
      if (bytes > 0)
        check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream()),
                   "cudaMemcpyAsync to the host");
      return detail::CudaEvent::recorded(stream());
    });
    return {std::move(data), bytes, std::make_shared<detail::CudaArrival>(end)};
  }
  /// Starts a copy that overlaps with later work. That work must not write to `from` before finish_copies_beside().
  [[nodiscard]] HostCopy start_copy_beside(const std::byte* from, std::size_t bytes) {
    check_not_recording("a copy to the host");
    if (!downloads_) downloads_ = std::make_unique<detail::DownloadQueue>();
    auto [data, end] = blocks_->start_copy(
        bytes, [&](std::byte* to) { return downloads_->copy(to, from, bytes, stream()); });
    return {std::move(data), bytes, std::make_shared<detail::CudaArrival>(end)};
  }
  /// Makes later work wait for the copies of start_copy_beside(), without blocking the host.
  void finish_copies_beside() {
    if (downloads_) downloads_->before(stream());
  }
  void fill_zero(std::byte* to, std::size_t bytes) {
    if (bytes > 0) check_cuda(cudaMemsetAsync(to, 0, bytes, stream()), "cudaMemsetAsync");
  }
  void synchronize() {
    check_not_recording("waiting for the GPU");
    check_cuda(cudaStreamSynchronize(stream()), "cudaStreamSynchronize (work before it failed)");
  }

  using Graph = detail::CudaGraph;
  /// Records the work that body() issues, without running it. Tensors that body() allocates come from the graph's own
  /// arena. body must have run once before, to load kernels and choose plans, and must not copy from or to the host.
  [[nodiscard]] detail::CudaGraph record(auto&& body) {
    check(stream() != nullptr && stream() != cudaStreamLegacy,
          "CUDA cannot record a step on its default stream: use another stream, or do not record");
    check(!options_.allocator,
          "a recorded step owns its memory, which a host program's allocator cannot provide: use "
          "no allocator, or do not record");
    synchronize();
    // The graph has its own arena and cannot use the cached free blocks of earlier work.
    memory_->trim();
    // Relaxed mode allows the arena to allocate during capture.
    check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed),
               "cudaStreamBeginCapture");
    auto arena = std::make_shared<const detail::CudaArena>(memory_);
    recording_ = arena;
    has_recorded_ = true;
    cudaGraph_t recorded = nullptr;
    detail::CudaGraph::Branches branches;
    const auto end = [&] {
      recording_ = nullptr;
      branches = std::exchange(branches_, {});
      memory_->use_first_arena();
      return cudaStreamEndCapture(stream(), &recorded);
    };
    try {
      body();
      for (const auto& branch : branches_)
        detail::CudaEvent::recorded(branch->stream()).before(stream());
    } catch (...) {
      detail::quietly(end());
      // NCCL cannot destroy a communicator that a live graph uses.
      if (recorded != nullptr) detail::quietly(cudaGraphDestroy(recorded));
      throw;
    }
    check_cuda(end(), "cudaStreamEndCapture");
    return detail::CudaGraph(recorded, std::move(branches), std::move(arena));
  }
  void run(const detail::CudaGraph& graph) { graph.launch(stream()); }
  [[nodiscard]] bool recording() const { return recording_ != nullptr; }
  /// Identifies the current recording; communicators compare it, and may serve several devices.
  [[nodiscard]] detail::RecordingId recording_id() const { return detail::RecordingId(recording_); }
  /// Adds a participant to the current recording. At the end, the device's stream waits for the participant's stream.
  void add_branch(std::shared_ptr<detail::CudaBranch> branch) {
    branches_.push_back(std::move(branch));
  }

  /// Returns null if the device does not trace.
  [[nodiscard]] const std::shared_ptr<Trace>& trace() const { return options_.trace; }
  [[nodiscard]] TraceMoment moment() const {
    check_not_recording("a point of a trace");
    return clock_->moment(stream());
  }
  class Scope : detail::NonCopyable {
   public:
    explicit Scope(Cuda& dev, const auto&... arguments) : trace_(dev, arguments...) {
      nvtxRangePushA(name_of(arguments...).c_str());
    }
    ~Scope() { nvtxRangePop(); }

   private:
    static std::string name_of(const std::string& name, TraceKind = TraceKind::work) {
      return name;
    }
    static std::string name_of(const char* name, std::int64_t number, TraceKind = TraceKind::work) {
      return concat(name, ' ', number);
    }
    static std::string name_of(const char* name, const std::source_location&) { return name; }
    TraceScope<Cuda> trace_;
  };
  /// Marks the lifetime of the result as a span for profilers and the trace. The arguments are those of TraceScope.
  [[nodiscard]] Scope scope(const auto&... arguments) { return Scope(*this, arguments...); }

  [[nodiscard]] int number() const { return options_.device; }
  [[nodiscard]] const cudaDeviceProp& properties() const { return properties_; }
  /// Returns the most bytes of shared memory that a block can have.
  [[nodiscard]] std::size_t max_shared_bytes() const { return properties_.sharedMemPerBlockOptin; }
  [[nodiscard]] int multiprocessors() const { return properties_.multiProcessorCount; }
  [[nodiscard]] cudaStream_t stream() const { return stream_->get(); }
  [[nodiscard]] detail::CudaMemory& memory() { return *memory_; }
  [[nodiscard]] cublasLtHandle_t cublas() const { return cublas_.get(); }
  [[nodiscard]] cudnnHandle_t cudnn() const { return cudnn_.get(); }
  /// Returns the scratch memory of cuBLASLt. The stream orders the uses of this memory.
  [[nodiscard]] std::byte* workspace() { return workspace_.get(); }
  [[nodiscard]] std::size_t workspace_bytes() const { return options_.workspace_bytes; }
  [[nodiscard]] const CudaOptions& options() const { return options_; }
  [[nodiscard]] int host_threads() const { return options_.host_threads; }
  /// Switches to CudaOptions::deterministic and drops the algorithms chosen so far. Call it before recording a step,
  /// because a graph keeps the algorithms it was recorded with.
  void make_deterministic() {
    if (options_.deterministic) return;
    check(!has_recorded_, "GPU ", number(),
          " has recorded a step with timed algorithms and cannot become deterministic; set "
          "CudaOptions::deterministic at construction");
    synchronize();
    options_.deterministic = true;
    cache_.clear();
  }

  /// Returns the device's only object of type T from the device cache. The first call constructs it as T(*this).
  template <class T>
  [[nodiscard]] T& cached() {
    auto& slot = cache_[std::type_index(typeid(T))];
    if (!slot) slot = std::make_unique<T>(*this);
    return static_cast<T&>(*slot);
  }

 private:
  /// Copies a piece of the pinned ring to the GPU.
  void send(std::byte* to, const std::byte* piece, std::size_t bytes) {
    if (auto* const queue = bytes < detail::UploadQueue::min_bytes ? nullptr : upload_queue())
      return queue->copy(to, piece, bytes, pinned_->place_of(piece), stream());
    check_cuda(cudaMemcpyAsync(to, piece, bytes, cudaMemcpyHostToDevice, stream()),
               "cudaMemcpyAsync to the GPU");
  }
  /// Returns null if the stream or the allocator is the host program's, or if GPU memory is short.
  detail::UploadQueue* upload_queue() {
    if (!uploads_ && may_upload_beside_) {
      may_upload_beside_ = !options_.stream && !options_.allocator;
      try {
        if (may_upload_beside_)
          uploads_ = std::make_unique<detail::UploadQueue>(*memory_, pinned_->size(), stream());
      } catch (const OutOfMemory&) {
        may_upload_beside_ = false;
      }
    }
    return uploads_.get();
  }
  void check_not_recording(const char* what) const {
    check(!recording_, "a recorded step cannot contain ", what, "; train without recording");
  }

  CudaOptions options_;
  cudaDeviceProp properties_{};
  std::unique_ptr<detail::CudaStream> stream_;
  std::shared_ptr<detail::CudaMemory> memory_;
  std::unique_ptr<detail::PinnedRing> pinned_;
  std::unique_ptr<detail::UploadQueue> uploads_;
  bool may_upload_beside_ = true;
  std::unique_ptr<detail::DownloadQueue> downloads_;
  std::shared_ptr<detail::PinnedBlocks> blocks_ = std::make_shared<detail::PinnedBlocks>();
  detail::CublasHandle cublas_;
  detail::CudnnHandle cudnn_;
  std::shared_ptr<std::byte> workspace_;
  std::shared_ptr<const detail::CudaArena> recording_;  // null outside a recording
  bool has_recorded_ = false;
  detail::CudaGraph::Branches branches_;    // participants of the current recording
  std::optional<detail::CudaClock> clock_;  // set only if the device traces
  // The cache is destroyed first, because its entries use the members above.
  std::map<std::type_index, std::unique_ptr<detail::CudaCached>> cache_;
};

static_assert(Device<Cuda>);

}  // namespace dhp
