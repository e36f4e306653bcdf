// CUDA's runtime as far as Cuda and NcclComm use it, on the host: a stream is a thread, GPU memory is memory. For one
// program without CUDA's libraries; tests/cuda/fake_nccl.hpp adds NCCL.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace fake {

inline constexpr int gpus = 4;

/// Work in order, on a thread of its own.
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
  std::thread thread_;
};

using Point = std::shared_ptr<std::atomic<bool>>;
inline void wait(const Point& point) { point->wait(false); }
inline void pass(const Point& point) { *point = true, point->notify_all(); }

/// How many of each there are: whose are left?
inline std::atomic<int> streams = 0, comms = 0, blocks = 0;

inline Queue& of(cudaStream_t stream) {
  static Queue by_default;
  return stream == nullptr ? by_default : *reinterpret_cast<Queue*>(stream);
}
inline thread_local int current_gpu = 0;

/// CUDA's cudaFree waits for the GPU. Here memory stays until the program ends, so that a kernel of a communicator
/// that is being aborted may still look at it.
inline void bury(void* old) {
  static std::mutex mutex;
  static std::deque<std::unique_ptr<void, void (*)(void*)>> graves;
  const std::lock_guard lock(mutex);
  graves.emplace_back(old, &std::free);
}
inline Point& of(cudaEvent_t event) { return *reinterpret_cast<Point*>(event); }

}  // namespace fake

extern "C" {
cudaError_t cudaGetDeviceCount(int* count) { return *count = fake::gpus, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return fake::current_gpu = device, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = fake::current_gpu, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  properties->major = 9;
  return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaMalloc(void** to, size_t bytes) {
  ++fake::blocks;
  return *to = std::aligned_alloc(256, (bytes + 255) / 256 * 256), cudaSuccess;
}
cudaError_t cudaFree(void* old) { return --fake::blocks, fake::bury(old), cudaSuccess; }
cudaError_t cudaMallocHost(void** to, size_t bytes) { return cudaMalloc(to, bytes); }
cudaError_t cudaFreeHost(void* old) { return cudaFree(old); }
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = 0, cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  fake::of(stream).put([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  fake::of(stream).put([=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned) {
  *made = reinterpret_cast<cudaStream_t>(new fake::Queue);
  return ++fake::streams, cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t old) {
  return --fake::streams, delete &fake::of(old), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return fake::of(stream).drain(), cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  fake::of(stream).put([point = fake::of(event)] { fake::wait(point); });
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaErrorNotSupported;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaErrorNotSupported;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned) {
  *made = reinterpret_cast<cudaEvent_t>(new fake::Point(std::make_shared<std::atomic<bool>>(true)));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t old) { return delete &fake::of(old), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto point = fake::of(event) = std::make_shared<std::atomic<bool>>(false);
  fake::of(stream).put([point] { fake::pass(point); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return *fake::of(event) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  return *ms = 0, cudaSuccess;  // all at once
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return fake::wait(fake::of(event)), cudaSuccess;
}

// --- libraries that a Cuda device opens ---
cublasStatus_t cublasLtCreate(cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "an error"; }
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* made) { return *made = nullptr, CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error"; }
void cudnnGetLastErrorString(char*, size_t) {}
size_t cudnnGetVersion() { return CUDNN_VERSION; }
}
