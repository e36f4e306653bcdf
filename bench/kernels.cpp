// BERT's matrix products and ResNet-50's convolutions on one thread: in f32 against oneDNN and another peer, which is
// Eigen for products and oneDNN in the layouts of a training step for convolutions; in bf16 and f16 against dhp in f32.
// All run in one process and in turns; the fastest time of each implementation counts.
// A ratio above 1 means that dhp, or its 16-bit version, is faster. Usage: bench_kernels [JSON file]
#include <bench/peer_eigen.hpp>
#include <bench/peer_onednn.hpp>
#include <bench/program.hpp>
#include <dhp/core/rng.hpp>
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>

namespace {

using namespace dhp;
using bench::thread_seconds;

struct Times {
  double ours = 1e30;  ///< dhp's seconds in f32
  double bf16 = 1e30;  ///< dhp's seconds in bf16
  double f16 = 1e30;
  double onednn = 1e30;
  double other = 1e30;  ///< Eigen's product, or oneDNN's convolution in a training step's layouts
};
struct Row {
  std::string group, name;
  double count;  ///< occurrences in the model
  double flops;
  Times time;
  [[nodiscard]] bool is_gemm() const { return group == "gemm"; }
  [[nodiscard]] bool with_other() const { return is_gemm() ? bench::has_eigen : bench::has_onednn; }
};

constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};

// Runs the implementations in turns, so that other load affects them alike. ours(at) computes in types[at].
Times measure(auto&& ours, auto&& onednn, auto&& other) {
  Times best;
  double spent = 0;
  for (int round = 0; round < 40; ++round) {
    const auto of = [&](std::size_t at) { return thread_seconds([&] { ours(at); }); };
    const Times now{of(0), of(1), of(2), thread_seconds(onednn), thread_seconds(other)};
    best.ours = std::min(best.ours, now.ours);
    best.bf16 = std::min(best.bf16, now.bf16);
    best.f16 = std::min(best.f16, now.f16);
    best.onednn = std::min(best.onednn, now.onednn);
    best.other = std::min(best.other, now.other);
    spent += now.ours + now.onednn + now.other;
    if (round >= 6 && spent > 0.4) break;
  }
  return best;
}

// One tensor for each of the types; the first one is f32.
using Tensors = std::array<Tensor<Cpu>, 3>;
Tensors tensors(Cpu& dev, const Shape& shape) {
  return {Tensor<Cpu>(dev, types[0], shape), Tensor<Cpu>(dev, types[1], shape),
          Tensor<Cpu>(dev, types[2], shape)};
}
Tensors random_tensors(Cpu& dev, const Shape& shape, std::uint32_t use) {
  auto made = tensors(dev, shape);
  const RandomStream stream{.seed = 1, .use = use};
  float* values = made[0].mut().data<float>();
  for (std::int64_t i = 0; i < shape.count(); ++i)
    values[i] = static_cast<float>(stream.uniform(static_cast<std::uint64_t>(i)) - 0.5);
  for (const std::size_t at : {1, 2}) cast(dev, made[0], made[at].mut());
  return made;
}

class Table {
 public:
  void add(Row row) {
    const auto& [ours, bf16, f16, onednn, other] = row.time;
    std::printf("%-10s %-34s x%-3.0f %8.1f %5.2f %5.2f", row.group.c_str(), row.name.c_str(),
                row.count, row.flops / ours * 1e-9, ours / bf16, ours / f16);
    if (bench::has_onednn) std::printf(" %8.1f   %5.2f", row.flops / onednn * 1e-9, onednn / ours);
    if (row.with_other()) std::printf(" %8.1f   %5.2f", row.flops / other * 1e-9, other / ours);
    std::printf("\n");
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }
  // The peer's seconds over dhp's, summed over the rows whose group starts with `group` and weighted by occurrences in
  // the model.
  [[nodiscard]] double ratio(const std::string& group, double Times::*peer) const {
    double theirs = 0, ours = 0;
    for (const auto& row : rows_) {
      if (!row.group.starts_with(group)) continue;
      theirs += row.count * row.time.*peer;
      ours += row.count * row.time.ours;
    }
    return theirs / ours;
  }
  void write(const std::string& path) const {
    std::ofstream file(path);
    file << "{\"threads\": 1, \"rows\": [";
    const char* separator = "\n";
    for (const auto& row : rows_) {
      file << separator << "{\"group\": \"" << row.group << "\", \"name\": \"" << row.name
           << "\", \"count\": " << row.count << ", \"gflop\": " << row.flops * 1e-9
           << ", \"dhp_ms\": " << row.time.ours * 1e3 << ", \"bf16_ms\": " << row.time.bf16 * 1e3
           << ", \"f16_ms\": " << row.time.f16 * 1e3;
      if (bench::has_onednn) file << ", \"onednn_ms\": " << row.time.onednn * 1e3;
      if (row.with_other())
        file << (row.is_gemm() ? ", \"eigen_ms\": " : ", \"onednn_step_ms\": ")
             << row.time.other * 1e3;
      file << "}";
      separator = ",\n";
    }
    file << "\n]}\n";
  }

 private:
  std::vector<Row> rows_;
};

void bench_gemm(Cpu& dev, Table& table) {
  struct Size {
    const char* name;
    std::int64_t m, n, k;
  };
  const Size sizes[] = {{"BERT-mini qkv", 1024, 256, 256},
                        {"BERT-mini ffn", 1024, 1024, 256},
                        {"BERT-mini ffn out", 1024, 256, 1024},
                        {"BERT-base qkv", 512, 768, 768},
                        {"BERT-base ffn", 512, 3072, 768},
                        {"BERT-base ffn out", 512, 768, 3072},
                        {"square", 256, 256, 256},
                        {"square", 1024, 1024, 1024}};
  struct Form {
    const char* name;
    bool ta, tb;
  };
  // y = x W^T, dx = dy W, dW = dy^T x
  for (const auto& [name, m, n, k] : sizes) {
    for (const Form form : {Form{"y", false, true}, {"dx", false, false}, {"dw", true, false}}) {
      const std::int64_t rows = form.ta ? n : m;
      const std::int64_t columns = form.tb ? n : k;
      const std::int64_t depth = form.ta ? m : form.tb ? k : n;
      const auto a = random_tensors(dev, form.ta ? Shape{depth, rows} : Shape{rows, depth}, 1);
      const auto b =
          random_tensors(dev, form.tb ? Shape{columns, depth} : Shape{depth, columns}, 2);
      auto c = tensors(dev, {rows, columns});
      Tensor<Cpu> d(dev, DType::f32, {rows, columns});
      const auto time = measure(
          [&](std::size_t at) {  // weight gradients are f32
            gemm(dev, a[at], b[at], c[form.ta ? 0 : at].mut(),
                 {.transpose_a = form.ta, .transpose_b = form.tb});
          },
          [&] {
            bench::onednn_gemm(form.ta, form.tb, rows, columns, depth, a[0].view().data<float>(),
                               b[0].view().data<float>(), d.mut().data<float>());
          },
          [&] {
            bench::eigen_gemm(form.ta, form.tb, rows, columns, depth, a[0].view().data<float>(),
                              b[0].view().data<float>(), d.mut().data<float>());
          });
      table.add({"gemm", concat(name, " ", form.name, " ", rows, "x", columns, "x", depth), 1,
                 2.0 * static_cast<double>(rows * columns * depth), time});
    }
  }
}

struct ConvLayer {
  int count;
  std::int64_t size, in, out;
  Conv2dGeometry geometry;
};
// All 53 convolutions of ResNet-50 v1.5 at 224 x 224.
const ConvLayer resnet50[] = {
    {1, 224, 3, 64, {7, 2, 3}},    {1, 56, 64, 64, {1, 1, 0}},    {3, 56, 64, 64, {3, 1, 1}},
    {4, 56, 64, 256, {1, 1, 0}},   {2, 56, 256, 64, {1, 1, 0}},   {1, 56, 256, 128, {1, 1, 0}},
    {1, 56, 128, 128, {3, 2, 1}},  {4, 28, 128, 512, {1, 1, 0}},  {1, 56, 256, 512, {1, 2, 0}},
    {3, 28, 512, 128, {1, 1, 0}},  {3, 28, 128, 128, {3, 1, 1}},  {1, 28, 512, 256, {1, 1, 0}},
    {1, 28, 256, 256, {3, 2, 1}},  {6, 14, 256, 1024, {1, 1, 0}}, {1, 28, 512, 1024, {1, 2, 0}},
    {5, 14, 1024, 256, {1, 1, 0}}, {5, 14, 256, 256, {3, 1, 1}},  {1, 14, 1024, 512, {1, 1, 0}},
    {1, 14, 512, 512, {3, 2, 1}},  {3, 7, 512, 2048, {1, 1, 0}},  {1, 14, 1024, 2048, {1, 2, 0}},
    {2, 7, 2048, 512, {1, 1, 0}},  {2, 7, 512, 512, {3, 1, 1}}};

void bench_conv2d(Cpu& dev, Table& table) {
  constexpr std::int64_t batch = 4;
  for (const auto& [count, size, in, out, geometry] : resnet50) {
    const Shape image{batch, size, size, in};
    const Shape result = conv2d_output_shape(image, out, geometry);
    const auto x = random_tensors(dev, image, 1);
    const auto w = random_tensors(dev, {out, geometry.kernel, geometry.kernel, in}, 2);
    const auto dy = random_tensors(dev, result, 3);
    auto y = tensors(dev, result), dx = tensors(dev, image);
    Tensor<Cpu> dw(dev, DType::f32, w[0].shape());
    const bench::ConvolutionSizes sizes{
        batch, size, in, out, result[1], geometry.kernel, geometry.stride, geometry.padding};
    bench::OnednnConvolution peer(sizes, bench::Layouts::preferred);
    bench::OnednnConvolution in_step(sizes, bench::Layouts::step);
    const auto name =
        concat(size, " ", in, "->", out, " k", geometry.kernel, " s", geometry.stride);
    const double flops = 2.0 * static_cast<double>(result.count() * w[0].count() / out);
    table.add(
        {"conv_y", name, static_cast<double>(count), flops,
         measure([&](std::size_t at) { conv2d_forward(dev, x[at], w[at], geometry, y[at].mut()); },
                 [&] { peer.forward(); }, [&] { in_step.forward(); })});
    if (in != 3)  // images need no gradient
      table.add({"conv_dx", name, static_cast<double>(count), flops,
                 measure(
                     [&](std::size_t at) {
                       conv2d_backward_data(dev, dy[at], w[at], geometry, dx[at].mut());
                     },
                     [&] { peer.backward_data(); }, [&] { in_step.backward_data(); })});
    table.add({"conv_dw", name, static_cast<double>(count), flops,
               measure(
                   [&](std::size_t at) {
                     conv2d_backward_filter(dev, x[at], dy[at], geometry, dw.mut(), 0);
                   },
                   [&] { peer.backward_filter(); }, [&] { in_step.backward_filter(); })});
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (!bench::has_onednn && !bench::has_eigen) {
    std::printf(
        "neither oneDNN nor Eigen was found when this was built (Debian: libdnnl-dev "
        "libeigen3-dev): nothing to compare\n");
    return 0;
  }
  bench::use_one_thread(argv);
  Cpu dev;
  Table table;
  std::printf("%-10s %-39s %8s %5s %5s", "what", "shape, times in the model", "dhp", "bf16", "f16");
  if (bench::has_onednn) std::printf(" %8s   %5s", "oneDNN", "ratio");
  std::printf(" %8s   %5s", "other", "ratio");
  std::printf("   (GFLOP/s)\n");
  bench_gemm(dev, table);
  if (bench::has_onednn) bench_conv2d(dev, table);
  if (bench::has_onednn) {
    for (const char* group : {"gemm", "conv_y", "conv_dx", "conv_dw", "conv"})
      std::printf("sum of %-8s dhp / oneDNN %.3f\n", group, table.ratio(group, &Times::onednn));
    for (const char* group : {"conv_y", "conv_dx", "conv_dw", "conv"})
      std::printf("sum of %-8s dhp / oneDNN in a step's layouts %.3f\n", group,
                  table.ratio(group, &Times::other));
  }
  for (const char* group : {"gemm", "conv"})
    if (bench::has_onednn || *group == 'g')
      std::printf("sum of %-8s bf16 / f32 %.3f, f16 / f32 %.3f\n", group,
                  1 / table.ratio(group, &Times::bf16), 1 / table.ratio(group, &Times::f16));
  if (bench::has_eigen)
    std::printf("sum of %-8s dhp / Eigen  %.3f\n", "gemm", table.ratio("gemm", &Times::other));
  if (argc > 1) table.write(argv[1]);
}
