// A fake of the CUDA runtime on the host, for a program without CUDA's libraries: the functions that Cuda and NcclComm
// use. A stream is a thread; GPU memory is host memory. A capture refuses all calls that CUDA refuses.
#pragma once

#include <tests/cuda/fake_capture.hpp>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

namespace fake {

inline constexpr int gpus = 4;
/// Properties of the machine: number of visible GPUs, their compute capability, versions of libraries.
inline int visible_gpus = gpus, capability_major = 9, capability_minor = 0, multiprocessors = 132;
inline std::size_t cudnn_version = CUDNN_VERSION, cublas_version = CUBLAS_VERSION;
/// If set, called instead of a copy, or instead of a fill with zeros (`from` is null).
inline std::function<void(void* to, const void* from, std::size_t bytes)> instead_of_copy;

/// Runs work in order, on its own thread.
class Queue {
 public:
  Queue() : thread_([this] { work(); }) {}
  ~Queue() {
    put({});
    thread_.join();
  }
  void put(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(work));
    changed_.notify_all();
  }
  std::shared_ptr<Capture> capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
  }
  void set_capture(std::shared_ptr<Capture> capture) {
    const std::lock_guard lock(mutex_);
    capture_ = std::move(capture);
  }
  std::atomic<float> ms = 0;  ///< time of its work, if it counts

  void drain() {
    std::atomic<bool> done = false;
    put([&] { done = true, done.notify_all(); });
    done.wait(false);
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !jobs_.empty(); });
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      if (!job) return;
      job();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::shared_ptr<Capture> capture_;  // the capture that records it
  std::thread thread_;
};

using Point = std::shared_ptr<std::atomic<bool>>;
inline void wait(const Point& point) { point->wait(false); }
inline void pass(const Point& point) { *point = true, point->notify_all(); }
inline Point new_point(bool passed) { return std::make_shared<std::atomic<bool>>(passed); }

struct Event {
  Point point = new_point(true);
  bool recorded = false;
  int number = -1;                   // number of its point in a capture
  std::weak_ptr<Capture> capture{};  // may have ended
  float ms = 0;                      // time of its stream
};

/// Numbers of existing streams, communicators and blocks, to find leaks.
inline std::atomic<int> streams = 0, comms = 0, blocks = 0;
/// Copies from the host: the bytes that have arrived, and the duration of a copy.
inline std::atomic<std::size_t> arrived_bytes = 0;
inline std::atomic<int> copy_ms = 0;

inline Queue& of(cudaStream_t stream) {
  static Queue by_default;
  return stream == nullptr ? by_default : *reinterpret_cast<Queue*>(stream);
}
/// Holds streams: they run no further work until the gate opens.
class Gate {
 public:
  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void hold(cudaStream_t stream) {
    of(stream).put([point = point_] { wait(point); });
  }
  void open() { pass(point_); }

 private:
  Point point_ = new_point(false);
};

inline thread_local int current_gpu = 0;
/// Stays until cudaGetLastError() is called. Otherwise the next kernel launch would seem to have failed.
inline thread_local cudaError_t last_error = cudaSuccess;
inline cudaError_t fail(cudaError_t code) { return last_error = code; }

/// The memory of all GPUs together.
struct GpuMemory {
  void add(void* block, std::size_t bytes) {
    sizes[block] = bytes;
    owners[block] = current_gpu;
    held += bytes;
  }
  void remove(void* block) {
    const auto at = sizes.find(block);
    if (at == sizes.end()) return;
    if (owners[block] != current_gpu) ++freed_elsewhere;
    held -= at->second;
    sizes.erase(at);
  }
  std::mutex mutex;
  std::map<void*, std::size_t> sizes;
  std::map<void*, int> owners;           ///< the current GPU of the thread that allocated a block
  std::atomic<int> freed_elsewhere = 0;  ///< frees while another GPU was current
  std::size_t held = 0, total = std::numeric_limits<std::size_t>::max();
};
inline GpuMemory gpu_memory;

/// Page-locked blocks, with their sizes.
struct PinnedMemory {
  std::mutex mutex;
  std::map<const void*, std::size_t> sizes;
};
inline PinnedMemory pinned_memory;

/// Returns whether a copy may be asynchronous: the memory is page-locked, or a GPU's.
inline bool is_known(const void* address) {
  const auto holds = [&](auto& memory) {
    const std::lock_guard lock(memory.mutex);
    for (const auto& [block, bytes] : memory.sizes)
      if (address >= block && address < static_cast<const char*>(block) + bytes) return true;
    return false;
  };
  return holds(pinned_memory) || holds(gpu_memory);
}

/// The driver's lock, one for all GPUs. Calls that allocate take it. Calls that wait for a stream hold it during the
/// wait: frees, and copies of pageable memory.
inline std::recursive_mutex driver;
inline std::map<Queue*, int> gpu_of;  // without the default streams; guarded by `driver`

/// CUDA's cudaFree waits for the GPU. Here, memory stays until the program ends, because kernels of an aborted
/// communicator may still read it.
inline void bury(void* old) {
  static std::mutex mutex;
  static std::deque<std::unique_ptr<void, void (*)(void*)>> graves;
  const std::lock_guard lock(mutex);
  graves.emplace_back(old, &std::free);
}
inline Event& of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

/// Adds work to a stream, or to the capture that records the stream.
inline void issue(cudaStream_t stream, Maker work) {
  auto& queue = of(stream);
  if (const auto capture = queue.capture()) capture->add(&queue, std::move(work));
  else queue.put(work());
}

struct Graph {
  std::shared_ptr<Capture> capture;
  Queue* origin;
};
/// A graph to launch. All recorded streams but the origin are replaced by new ones.
struct GraphRun {
  explicit GraphRun(const Graph& graph) : recorded(graph) {
    for (auto* stream : graph.capture->streams())
      if (stream != graph.origin) others[stream] = std::make_unique<Queue>();
  }
  void launch(Queue& stream) {
    const auto begin = new_point(false);
    stream.put([begin] { pass(begin); });
    for (auto& [original, other] : others) other->put([begin] { wait(begin); });
    std::vector<Point> points;
    for (std::size_t k = 0; k < recorded.capture->points(); ++k) points.push_back(new_point(false));
    const auto at = [&](int number) { return points[static_cast<std::size_t>(number)]; };
    for (const auto& piece : recorded.capture->pieces()) {
      auto& queue = piece.stream == recorded.origin ? stream : *others.at(piece.stream);
      if (piece.work) queue.put(piece.work());
      else if (piece.passes >= 0) queue.put([point = at(piece.passes)] { pass(point); });
      else queue.put([point = at(piece.waits_for)] { wait(point); });
    }
  }
  Graph recorded;
  std::map<Queue*, std::unique_ptr<Queue>> others;
};

}  // namespace fake

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = fake::visible_gpus, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return fake::current_gpu = device, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = fake::current_gpu, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "Fake");
  properties->major = fake::capability_major;
  properties->minor = fake::capability_minor;
  properties->multiProcessorCount = fake::multiprocessors;
  properties->sharedMemPerBlockOptin = std::size_t{227} << 10;
  properties->totalGlobalMem = fake::gpu_memory.total;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 0, cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetLastError() { return std::exchange(fake::last_error, cudaSuccess); }
cudaError_t cudaMallocHost(void** to, size_t bytes) {
  const std::lock_guard driver(fake::driver);
  ++fake::blocks;
  *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  const std::lock_guard lock(fake::pinned_memory.mutex);
  return fake::pinned_memory.sizes[*to] = bytes, cudaSuccess;
}
cudaError_t cudaFreeHost(void* old) {
  const std::lock_guard driver(fake::driver);
  const std::lock_guard lock(fake::pinned_memory.mutex);
  fake::pinned_memory.sizes.erase(old);
  return --fake::blocks, fake::bury(old), cudaSuccess;
}
cudaError_t cudaMalloc(void** to, size_t bytes) {
  const std::lock_guard driver(fake::driver);
  auto& memory = fake::gpu_memory;
  const std::lock_guard lock(memory.mutex);
  if (bytes > memory.total - memory.held) return fake::fail(cudaErrorMemoryAllocation);
  ++fake::blocks;
  *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return memory.add(*to, bytes), cudaSuccess;
}
cudaError_t cudaFree(void* old) {
  const std::lock_guard driver(fake::driver);
  for (const auto& [stream, gpu] : fake::gpu_of)
    if (gpu == fake::current_gpu && !stream->capture()) stream->drain();
  const std::lock_guard lock(fake::gpu_memory.mutex);
  fake::gpu_memory.remove(old);
  return --fake::blocks, fake::bury(old), cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  const std::lock_guard lock(fake::gpu_memory.mutex);
  *total = fake::gpu_memory.total;
  return *free = *total - fake::gpu_memory.held, cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (fake::instead_of_copy) return fake::instead_of_copy(to, from, bytes), cudaSuccess;
  const int ms = kind == cudaMemcpyDeviceToDevice ? 0 : fake::copy_ms.load();
  const auto copy = [=] {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    std::memcpy(to, from, bytes);
    if (kind == cudaMemcpyHostToDevice) fake::arrived_bytes += bytes;
  };
  if (fake::is_known(to) && fake::is_known(from)) {
    fake::issue(stream, [=] { return copy; });
    return cudaSuccess;
  }
  const std::lock_guard driver(fake::driver);
  fake::issue(stream, [=] { return copy; });
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (fake::instead_of_copy) return fake::instead_of_copy(to, nullptr, bytes), cudaSuccess;
  fake::issue(stream, [=] { return [=] { std::memset(to, value, bytes); }; });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* result, unsigned) {
  const std::lock_guard driver(fake::driver);
  *result = reinterpret_cast<cudaStream_t>(new fake::Queue);
  fake::gpu_of[&fake::of(*result)] = fake::current_gpu;
  return ++fake::streams, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t old) {
  {
    const std::lock_guard driver(fake::driver);
    fake::gpu_of.erase(&fake::of(old));
  }
  return --fake::streams, delete &fake::of(old), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (fake::of(stream).capture()) return fake::fail(cudaErrorStreamCaptureUnsupported);
  return fake::of(stream).drain(), cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  auto& queue = fake::of(stream);
  const auto& point = fake::of(event);
  if (point.number >= 0) {
    const auto capture = point.capture.lock();
    if (capture == nullptr || capture->over()) return fake::fail(cudaErrorInvalidValue);
    if (!queue.capture()) queue.set_capture(capture);
    if (queue.capture() != capture) return fake::fail(cudaErrorStreamCaptureMerge);
    return capture->wait(&queue, point.number), cudaSuccess;
  }
  if (queue.capture())
    return point.recorded ? fake::fail(cudaErrorStreamCaptureIsolation) : cudaSuccess;
  queue.put([point = point.point] { fake::wait(point); });
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  fake::of(stream).set_capture(std::make_shared<fake::Capture>());
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* result) {
  auto& origin = fake::of(stream);
  const auto capture = origin.capture();
  const bool joined = capture->end(&origin);
  origin.set_capture(nullptr);
  for (auto* queue : capture->streams()) queue->set_capture(nullptr);
  if (!joined) return fake::fail(cudaErrorStreamCaptureUnjoined);
  *result = reinterpret_cast<cudaGraph_t>(new fake::Graph{capture, &origin});
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status =
      fake::of(stream).capture() ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* result, cudaGraph_t graph, unsigned long long) {
  *result =
      reinterpret_cast<cudaGraphExec_t>(new fake::GraphRun(*reinterpret_cast<fake::Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return reinterpret_cast<fake::GraphRun*>(graph)->launch(fake::of(stream)), cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t old) {
  return delete reinterpret_cast<fake::Graph*>(old), cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t old) {
  return delete reinterpret_cast<fake::GraphRun*>(old), cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* result, unsigned) {
  return *result = reinterpret_cast<cudaEvent_t>(new fake::Event), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t old) { return delete &fake::of(old), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  auto& queue = fake::of(stream);
  if (const auto capture = queue.capture()) {
    fake::of(event) = {.recorded = true, .number = capture->pass(&queue), .capture = capture};
    return cudaSuccess;
  }
  const auto point = fake::new_point(false);
  fake::of(event) = {.point = point, .recorded = true, .ms = queue.ms};
  queue.put([point] { fake::pass(point); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (fake::of(event).number >= 0) return fake::fail(cudaErrorCapturedEvent);
  return *fake::of(event).point ? cudaSuccess : fake::fail(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  return *ms = fake::of(to).ms - fake::of(from).ms, cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (fake::of(event).number >= 0) return fake::fail(cudaErrorCapturedEvent);
  return fake::wait(fake::of(event).point), cudaSuccess;
}

// --- libraries that a Cuda device opens ---
cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error"; }
size_t cublasLtGetVersion() { return fake::cublas_version; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* result) {
  return *result = reinterpret_cast<cudnnHandle_t>(&fake::visible_gpus), CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error"; }
void cudnnGetLastErrorString(char*, size_t) {}
size_t cudnnGetVersion() { return fake::cudnn_version; }
}
