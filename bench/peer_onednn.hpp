// Products and convolutions by oneDNN on one thread, as a peer of bench/kernels.cpp.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#ifdef DHP_HAS_DNNL
#include <dnnl.hpp>

#include <unordered_map>
#endif

namespace bench {

/// The layouts of a convolution's tensors. `preferred`: oneDNN's own, as if nothing else used them. `step`: those of a
/// training step, images with their channels last and weights in rows, which oneDNN reorders in every call.
enum class Layouts { preferred, step };

struct ConvolutionSizes {
  std::int64_t batch, size, in, out, out_size;
  int kernel, stride, padding;
};

/// Restarts the program with OMP_NUM_THREADS=1, which OpenMP reads before main.
inline void use_one_thread(char** argv) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string(threads) == "1") return;
  setenv("OMP_NUM_THREADS", "1", 1);
  execv("/proc/self/exe", argv);
}

#ifdef DHP_HAS_DNNL
inline constexpr bool has_onednn = true;

/// c [m, n] = op(a) op(b), dense and row-major.
inline void onednn_gemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                        const float* a, const float* b, float* c) {
  dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1, a, ta ? m : k, b, tb ? k : n, 0, c, n);
}

class OnednnConvolution {
 public:
  OnednnConvolution(ConvolutionSizes s, Layouts layouts) {
    using namespace dnnl;
    using Tag = memory::format_tag;
    const auto images = layouts == Layouts::step ? Tag::nhwc : Tag::any;
    const auto descriptor = [](memory::dims dims, Tag tag) {
      return memory::desc(dims, memory::data_type::f32, tag);
    };
    const auto x = descriptor({s.batch, s.in, s.size, s.size}, images);
    const auto w = descriptor({s.out, s.in, s.kernel, s.kernel}, Tag::any);
    const auto y = descriptor({s.batch, s.out, s.out_size, s.out_size}, images);
    const memory::dims strides{s.stride, s.stride};
    const memory::dims padding{s.padding, s.padding};
    const auto direct = algorithm::convolution_direct;
    const convolution_forward::primitive_desc forward(
        {prop_kind::forward_training, direct, x, w, y, strides, padding, padding}, engine_);
    forward_ = {convolution_forward(forward),
                {{DNNL_ARG_SRC, make(forward.src_desc())},
                 {DNNL_ARG_WEIGHTS, make(forward.weights_desc())},
                 {DNNL_ARG_DST, make(forward.dst_desc())}}};
    const convolution_backward_data::primitive_desc data(
        {direct, x, w, y, strides, padding, padding}, engine_, forward);
    data_ = {convolution_backward_data(data),
             {{DNNL_ARG_DIFF_SRC, make(data.diff_src_desc())},
              {DNNL_ARG_WEIGHTS, make(data.weights_desc())},
              {DNNL_ARG_DIFF_DST, make(data.diff_dst_desc())}}};
    const convolution_backward_weights::primitive_desc filter(
        {direct, x, w, y, strides, padding, padding}, engine_, forward);
    filter_ = {convolution_backward_weights(filter),
               {{DNNL_ARG_SRC, make(filter.src_desc())},
                {DNNL_ARG_DIFF_WEIGHTS, make(filter.diff_weights_desc())},
                {DNNL_ARG_DIFF_DST, make(filter.diff_dst_desc())}}};
    if (layouts == Layouts::preferred) return;
    rows_ = make(descriptor({s.out, s.in, s.kernel, s.kernel}, Tag::ohwi));
    for (auto* job : {&forward_, &data_}) {
      const auto& weights = job->arguments.at(DNNL_ARG_WEIGHTS);
      if (weights.get_desc() != rows_.get_desc()) job->before = reorder(rows_, weights);
    }
    const auto& gradient = filter_.arguments.at(DNNL_ARG_DIFF_WEIGHTS);
    if (gradient.get_desc() != rows_.get_desc()) filter_.after = reorder(gradient, rows_);
  }
  void forward() { run(forward_); }
  void backward_data() { run(data_); }
  void backward_filter() { run(filter_); }

 private:
  struct Job {
    dnnl::primitive primitive;
    std::unordered_map<int, dnnl::memory> arguments;
    std::optional<dnnl::reorder> before{};  // of the weights, from rows
    std::optional<dnnl::reorder> after{};   // of their gradient, to rows
  };
  void run(Job& job) {
    if (job.before) job.before->execute(stream_, rows_, job.arguments.at(DNNL_ARG_WEIGHTS));
    job.primitive.execute(stream_, job.arguments);
    if (job.after) job.after->execute(stream_, job.arguments.at(DNNL_ARG_DIFF_WEIGHTS), rows_);
    stream_.wait();
  }
  dnnl::memory make(const dnnl::memory::desc& desc) {
    dnnl::memory result(desc, engine_);
    auto* values = static_cast<float*>(result.get_data_handle());
    for (std::size_t i = 0; i < desc.get_size() / sizeof(float); ++i)
      values[i] = static_cast<float>(i % 97) / 97 - 0.5f;
    return result;
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::memory rows_{};
  Job forward_, data_, filter_;
};
#else
inline constexpr bool has_onednn = false;
inline void onednn_gemm(bool, bool, std::int64_t, std::int64_t, std::int64_t, const float*,
                        const float*, float*) {}
struct OnednnConvolution {
  OnednnConvolution(ConvolutionSizes, Layouts) {}
  void forward() {}
  void backward_data() {}
  void backward_filter() {}
};
#endif

}  // namespace bench
