// BERT's matrix products and ResNet-50's convolutions in f32 on one thread, against oneDNN and, for
// products, Eigen, in one process. Implementations take turns; each one's fastest time counts. A
// ratio above 1 means that dhp is faster. Usage: bench_kernels [JSON file]
#include <bench/peer_eigen.hpp>
#include <bench/peer_onednn.hpp>
#include <bench/thread_seconds.hpp>
#include <dhp/core/rng.hpp>
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

namespace {

using namespace dhp;
using bench::thread_seconds;

struct Times {
  double ours = 1e30;  ///< seconds
  double onednn = 1e30;
  double eigen = 1e30;
};
struct Row {
  std::string group, name;
  double count;  ///< occurrences in the model
  double flops;
  Times time;
  [[nodiscard]] bool with_eigen() const { return bench::has_eigen && group == "gemm"; }
};

// In turns, so that other load affects both.
Times measure(auto&& ours, auto&& onednn, auto&& eigen) {
  Times best;
  double spent = 0;
  for (int round = 0; round < 40; ++round) {
    const Times now{thread_seconds(ours), thread_seconds(onednn), thread_seconds(eigen)};
    best.ours = std::min(best.ours, now.ours);
    best.onednn = std::min(best.onednn, now.onednn);
    best.eigen = std::min(best.eigen, now.eigen);
    spent += now.ours + now.onednn + now.eigen;
    if (round >= 6 && spent > 0.4) break;
  }
  return best;
}

Tensor<Cpu> random_tensor(Cpu& dev, const Shape& shape, std::uint32_t use) {
  Tensor<Cpu> made(dev, DType::f32, shape);
  const RandomStream stream{.seed = 1, .use = use};
  float* values = made.mut().data<float>();
  for (std::int64_t i = 0; i < made.count(); ++i)
    values[i] = static_cast<float>(stream.uniform(static_cast<std::uint64_t>(i)) - 0.5);
  return made;
}

class Table {
 public:
  void add(Row row) {
    const auto& [ours, onednn, eigen] = row.time;
    std::printf("%-10s %-34s x%-3.0f %8.1f", row.group.c_str(), row.name.c_str(), row.count,
                row.flops / ours * 1e-9);
    if (bench::has_onednn) std::printf(" %8.1f   %5.2f", row.flops / onednn * 1e-9, onednn / ours);
    if (row.with_eigen()) std::printf(" %8.1f   %5.2f", row.flops / eigen * 1e-9, eigen / ours);
    std::printf("\n");
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }
  // The peer's seconds over dhp's, summed over rows whose group starts with `group`, weighted by
  // occurrences in the model.
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
    file << "{\"threads\": 1, \"type\": \"f32\", \"rows\": [";
    const char* separator = "\n";
    for (const auto& row : rows_) {
      file << separator << "{\"group\": \"" << row.group << "\", \"name\": \"" << row.name
           << "\", \"count\": " << row.count << ", \"gflop\": " << row.flops * 1e-9
           << ", \"dhp_ms\": " << row.time.ours * 1e3;
      if (bench::has_onednn) file << ", \"onednn_ms\": " << row.time.onednn * 1e3;
      if (row.with_eigen()) file << ", \"eigen_ms\": " << row.time.eigen * 1e3;
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
      const auto a = random_tensor(dev, form.ta ? Shape{depth, rows} : Shape{rows, depth}, 1);
      const auto b = random_tensor(dev, form.tb ? Shape{columns, depth} : Shape{depth, columns}, 2);
      Tensor<Cpu> c(dev, DType::f32, {rows, columns});
      Tensor<Cpu> d(dev, DType::f32, {rows, columns});
      const auto time = measure(
          [&] { gemm(dev, a, b, c.mut(), {.transpose_a = form.ta, .transpose_b = form.tb}); },
          [&] {
            bench::onednn_gemm(form.ta, form.tb, rows, columns, depth, a.view().data<float>(),
                               b.view().data<float>(), d.mut().data<float>());
          },
          [&] {
            bench::eigen_gemm(form.ta, form.tb, rows, columns, depth, a.view().data<float>(),
                              b.view().data<float>(), d.mut().data<float>());
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
    const auto x = random_tensor(dev, image, 1);
    const auto w = random_tensor(dev, {out, geometry.kernel, geometry.kernel, in}, 2);
    const auto dy = random_tensor(dev, result, 3);
    Tensor<Cpu> y(dev, DType::f32, result);
    Tensor<Cpu> dx(dev, DType::f32, image);
    Tensor<Cpu> dw(dev, DType::f32, w.shape());
    bench::OnednnConvolution peer(
        {batch, size, in, out, result[1], geometry.kernel, geometry.stride, geometry.padding});
    const auto name =
        concat(size, " ", in, "->", out, " k", geometry.kernel, " s", geometry.stride);
    const double flops = 2.0 * static_cast<double>(result.count() * w.count() / out);
    table.add({"conv_y", name, static_cast<double>(count), flops,
               measure([&] { conv2d_forward(dev, x, w, geometry, y.mut()); },
                       [&] { peer.forward(); }, [] {})});
    if (in != 3)  // images need no gradient
      table.add({"conv_dx", name, static_cast<double>(count), flops,
                 measure([&] { conv2d_backward_data(dev, dy, w, geometry, dx.mut()); },
                         [&] { peer.backward_data(); }, [] {})});
    table.add({"conv_dw", name, static_cast<double>(count), flops,
               measure([&] { conv2d_backward_filter(dev, x, dy, geometry, dw.mut(), 0); },
                       [&] { peer.backward_filter(); }, [] {})});
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
  std::printf("%-10s %-39s %8s", "what", "shape, times in the model", "dhp");
  if (bench::has_onednn) std::printf(" %8s   %5s", "oneDNN", "ratio");
  if (bench::has_eigen) std::printf(" %8s   %5s", "Eigen", "ratio");
  std::printf("   (GFLOP/s)\n");
  bench_gemm(dev, table);
  if (bench::has_onednn) bench_conv2d(dev, table);
  if (bench::has_onednn)
    for (const char* group : {"gemm", "conv_y", "conv_dx", "conv_dw", "conv"})
      std::printf("sum of %-8s dhp / oneDNN %.3f\n", group, table.ratio(group, &Times::onednn));
  if (bench::has_eigen)
    std::printf("sum of %-8s dhp / Eigen  %.3f\n", "gemm", table.ratio("gemm", &Times::eigen));
  if (argc > 1) table.write(argv[1]);
}
