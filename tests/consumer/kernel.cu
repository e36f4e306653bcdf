// A kernel of the user's own in one program with dhp's kernels.
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/launch.cuh>

#include <cstdio>
#include <vector>

struct CountUp {
  float* y;
  std::int64_t count;
  template <class B>
  constexpr void operator()(B& block) const {
    for (auto at = dhp::detail::cuda::grid_thread(block); at < count;
         at += dhp::detail::cuda::grid_threads(block))
      y[at] = static_cast<float>(at);
  }
};

int main() {
  try {
    static_cast<void>(dhp::detail::usable_gpus());
  } catch (const dhp::Error& error) {  // most build machines have no GPU
    std::printf("%s\n", error.sentence().c_str());
    return 0;
  }
  dhp::Cuda gpu;
  dhp::Tensor<dhp::Cuda> y(gpu, dhp::DType::f32, {1000});
  launch(gpu, dhp::detail::cuda::grid_for(gpu, 1000), CountUp{y.mut().data<float>(), 1000});
  dhp::scale(gpu, 2.0, y.mut());
  std::vector<float> values(1000);
  gpu.copy_to_host(reinterpret_cast<std::byte*>(values.data()), y.view().bytes(), y.size_bytes());
  return values[999] == 1998.0f ? 0 : 1;
}
