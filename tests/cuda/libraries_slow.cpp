// cuBLASLt and cuDNN without a GPU: operands, descriptors, keys, and the graphs that described GPUs support.
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cuda/cublas_epilogue.hpp>
#include <dhp/cuda/cudnn_attention.hpp>
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/cudnn_conv2d.hpp>
#include <tests/cuda/described_device.hpp>
#include <tests/support/tensors.hpp>

using namespace dhp::detail::cuda;

namespace {

// Returns element (row, column) of op(matrix), for a column-major matrix.
double at(const std::vector<double>& values, ColumnMajorProduct::Matrix matrix, bool transposed,
          std::int64_t row, std::int64_t column) {
  if (transposed) std::swap(row, column);
  REQUIRE(row < matrix.rows);
  REQUIRE(column < matrix.columns);
  return values[static_cast<std::size_t>(column * matrix.rows + row)];
}

std::vector<double> numbers(std::int64_t count, std::uint32_t use) {
  Cpu cpu;
  return widened(random_tensor<double>(cpu, {count}, use));
}

CublasCall call_of(ColumnMajorProduct product, DType in, DType out) {
  return {.product = product, .in = in, .out = out};
}
// Returns an attribute of a cuBLASLt descriptor.
template <class T>
T attribute(const CublasProduct& product, cublasLtMatmulDescAttributes_t name, TypeTag<T>) {
  T value{};
  std::size_t size = 0;
  detail::check_cublas(
      cublasLtMatmulDescGetAttribute(product.how(), name, &value, sizeof value, &size),
      "cublasLtMatmulDescGetAttribute");
  CHECK(size == sizeof value);
  return value;
}

}  // namespace

TEST_CASE("cublas: a row-major product is the swapped column-major one for all transposes") {
  const std::int64_t m = 3, n = 5, k = 4;
  const auto a = numbers(m * k, 1), b = numbers(k * n, 2);
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      INFO("ta ", ta, " tb ", tb);
      const auto p = column_major(ta, tb, m, n, k);
      CHECK(p.c == ColumnMajorProduct::Matrix{n, m});
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double expected = 0, got = 0;
          for (std::int64_t l = 0; l < k; ++l) {
            expected += a[static_cast<std::size_t>(ta ? l * m + i : i * k + l)] *
                        b[static_cast<std::size_t>(tb ? j * k + l : l * n + j)];
            got += at(b, p.left, p.transpose_left, j, l) * at(a, p.right, p.transpose_right, l, i);
          }
          // Element (j, i) of the column-major c is element (i, j) of the row-major one.
          CHECK(got == expected);
        }
    }
}

TEST_CASE("cublas: padding changes the stride of rows, not their length") {
  Cpu dev;
  const Tensor<Cpu> x(dev, DType::bf16, {16, 8}), w(dev, DType::bf16, {5, 8});
  Tensor<Cpu> y(dev, DType::bf16, {16, 64}), dx(dev, DType::bf16, {16, 8}),
      dw(dev, DType::f32, {5, 8});
  const auto forward =
      cublas_call<Cpu>(x, w, y.mut(), {.transpose_b = true, .padded = true}).product;
  CHECK(forward.c == ColumnMajorProduct::Matrix{5, 16, 64});
  CHECK(forward.left == ColumnMajorProduct::Matrix{8, 5, 8});
  const auto input = cublas_call<Cpu>(y, w, dx.mut(), {.padded = true}).product;
  CHECK(input.right == ColumnMajorProduct::Matrix{5, 16, 64});
  CHECK(input.c == ColumnMajorProduct::Matrix{8, 16, 8});
  const auto weight =
      cublas_call<Cpu>(y, x, dw.mut(), {.transpose_a = true, .padded = true}).product;
  CHECK(weight.right == ColumnMajorProduct::Matrix{5, 16, 64});
  CHECK(weight.c == ColumnMajorProduct::Matrix{8, 5, 8});
}

TEST_CASE("alignment is the largest power of two up to 256") {
  alignas(512) static std::byte memory[1024];
  CHECK(alignment_of(memory) == 256);
  CHECK(alignment_of(memory + 2) == 2);
  CHECK(alignment_of(memory + 48) == 16);
  CHECK(alignment_of(nullptr) == 256);
}

TEST_CASE("cublas: a descriptor has the attributes of its call") {
  std::byte bias[64];
  for (const auto in : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    auto call = call_of(column_major(true, false, 6, 8, 10), in, accumulation_type(in));
    call.epilogue = CUBLASLT_EPILOGUE_BIAS;
    call.bias = bias;
    call.bias_type = call.out;
    call.sms = 100;
    const CublasProduct product(call);
    const auto check_is = [&]<class T>(cublasLtMatmulDescAttributes_t name, T value) {
      CHECK(attribute(product, name, TypeTag<T>()) == value);
    };
    check_is(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(CUBLAS_OP_N));
    check_is(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(CUBLAS_OP_T));
    check_is(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(CUBLASLT_EPILOGUE_BIAS));
    check_is(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, std::int32_t{100});
    check_is(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<std::byte*>(bias));
    check_is(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(cublas_type(call.out)));
    const auto compute = in == DType::f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    check_is(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, static_cast<std::int32_t>(compute));
    call.tf32 = true;
    if (in == DType::f32)
      CHECK(attribute(CublasProduct(call), CUBLASLT_MATMUL_DESC_COMPUTE_TYPE,
                      TypeTag<std::int32_t>()) == CUBLAS_COMPUTE_32F_FAST_TF32);
    std::uint64_t rows = 0;
    std::size_t size = 0;
    detail::check_cublas(
        cublasLtMatrixLayoutGetAttribute(product.right(), CUBLASLT_MATRIX_LAYOUT_ROWS, &rows,
                                         sizeof rows, &size),
        "cublasLtMatrixLayoutGetAttribute");
    CHECK(rows == 6);  // a is stored by rows as [10, 6], which cuBLASLt sees by columns as [6, 10]
  }
}

TEST_CASE("cublas: fused linear products use each pointer in its right role") {
  const std::int64_t rows = 24, in = 16, out = 40;
  std::byte memory[8];
  const auto view = [&](int at, DType type, const Shape& shape) {
    return View<Cuda>(memory + at, type, shape);
  };
  // The columns of the column-major c are the rows of ours.
  const auto check_call = [&](const CublasCall& call, cublasLtEpilogue_t epilogue, int left,
                              int right, int c, int bias, std::byte* aux, std::int64_t m,
                              std::int64_t n, std::int64_t k) {
    CHECK(call.epilogue == epilogue);
    CHECK(call.left == memory + left);
    CHECK(call.right == memory + right);
    CHECK(call.c == memory + c);
    CHECK(call.bias == (bias < 0 ? nullptr : memory + bias));
    CHECK(call.aux == aux);
    const auto& p = call.product;
    CHECK(p.c == ColumnMajorProduct::Matrix{n, m});
    CHECK((p.transpose_left ? p.left.rows : p.left.columns) == k);
    CHECK((p.transpose_right ? p.right.columns : p.right.rows) == k);
    const auto stride = attribute(CublasProduct(call), CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                  TypeTag<std::int64_t>());
    CHECK(stride == (aux == nullptr ? 0 : n));
  };
  for (const auto type : {DType::bf16, DType::f16}) {
    const auto x = view(0, type, {rows, in}), w = view(1, type, {out, in});
    const auto bias = view(2, type, {out}), y = view(3, type, {rows, out});
    const auto before = view(4, type, {rows, out});
    const auto forward = linear_gelu<Cuda>(x, w, bias, before, y).value();
    check_call(forward, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 1, 0, 3, 2, memory + 4, rows, out, in);
    CHECK(forward.bias_type == type);
    const auto odd = view(3, type, {rows, out - 1});
    CHECK_FALSE(linear_gelu<Cuda>(x, w, bias, odd, odd));
    CHECK_FALSE(linear_gelu<Cuda>(x, w, view(2, DType::f32, {out}), before, y));

    const auto dy = view(0, type, {rows, out}), dbefore = view(5, type, {rows, in});
    const auto input = view(6, type, {rows, in});
    check_call(linear_gelu_gradient<Cuda>(dy, w, input, dbefore).value(), CUBLASLT_EPILOGUE_DGELU,
               1, 0, 5, -1, memory + 6, rows, in, out);
    CHECK_FALSE(linear_gelu_gradient<Cuda>(dy, w, view(6, DType::f32, {rows, in}), dbefore));

    const auto dw = view(2, DType::f32, {out, in}), dbias = view(3, DType::f32, {out});
    const auto gradients =
        weight_and_bias_gradient<Cuda>(dy, view(1, type, {rows, in}), dw, dbias, 1).value();
    check_call(gradients, CUBLASLT_EPILOGUE_BGRADB, 1, 0, 2, 3, nullptr, out, in, rows);
    CHECK(gradients.bias_type == DType::f32);
    CHECK(gradients.beta == 1);
  }
  // f32 must not use GELU's tanh form.
  const auto square = view(0, DType::f32, {8, 8}), vector = view(1, DType::f32, {8});
  CHECK_FALSE(linear_gelu<Cuda>(square, square, vector, square, square));
  CHECK_FALSE(linear_gelu_gradient<Cuda>(square, square, square, square));
}

TEST_CASE("add_fresh: a library's sums are added to beta times the old values") {
  Cpu cpu;
  const auto fresh = random_tensor<bf16>(cpu, {5}, 1);
  for (const double beta : {0.0, 1.0, 0.5}) {
    auto to = random_tensor<float>(cpu, {5}, 2);
    auto expected = widened(to);
    for (std::size_t at = 0; at < 5; ++at) expected[at] = beta * expected[at] + widened(fresh)[at];
    if (beta == 0) fill(cpu, to.mut(), NAN);  // beta 0: not read
    add_fresh<Cpu>(cpu, fresh.view(), beta, to.mut());
    CHECK(distance(widened(to), expected) < 1e-6);
  }
}

TEST_CASE("cublas: different problems have different keys") {
  std::byte memory[512];
  std::set<std::string> texts;
  std::set<CublasKey> keys;
  const auto add_key = [&](const CublasCall& call) {
    keys.insert(CublasKey(call));
    texts.insert(CublasKey(call).text());
  };
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      add_key(call_of(column_major(ta, tb, 4, 4, 4), DType::bf16, DType::bf16));
  auto call = call_of(column_major(false, false, 4, 4, 8), DType::bf16, DType::bf16);
  add_key(call);
  call.beta = 0.5;
  add_key(call);
  call.out = DType::f32;
  add_key(call);
  call.epilogue = CUBLASLT_EPILOGUE_BIAS;
  call.bias_type = DType::bf16;
  add_key(call);
  call.left = memory + 1;
  add_key(call);
  call.tf32 = true;
  add_key(call);
  call.product.right.stride = 16;
  add_key(call);
  call.product.c.stride = 16;
  add_key(call);
  CHECK(keys.size() == 12);
  CHECK(texts.size() == 12);
  call.beta = 1;  // beta does not change the key
  add_key(call);
  CHECK(keys.size() == 12);
}

TEST_CASE("cublas: products of one size class share a memory layout, for all transposes") {
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (std::int64_t rows = 1; rows <= 300; ++rows) {
        const auto check_class = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool differs) {
          const auto one = column_major(ta, tb, m, n, k);
          const auto largest = class_of(one);
          CHECK(class_of(largest) == largest);
          for (const auto& [own, of_class] : {std::pair(one.left, largest.left),
                                              {one.right, largest.right},
                                              {one.c, largest.c}}) {
            CHECK(own.rows == of_class.rows);
            CHECK(own.columns <= of_class.columns);
            CHECK(of_class.columns - own.columns < std::max<std::int64_t>(8, own.columns / 8 + 1));
          }
          CHECK((one == largest) == (!differs || detail::size_class(rows, 8) == rows));
        };
        // Classes round up the rows of x in x w and in dy^T x, and no other extent.
        check_class(rows, 5, 8, !ta);
        check_class(8, 5, rows, ta && !tb);
      }
  CHECK(detail::size_class(0, 8) == 8);
  CHECK(detail::size_class(64, 8) == 64);
  CHECK(detail::size_class(65, 8) == 72);
  CHECK(detail::size_class(4096, 8) == 4096);
  CHECK(detail::size_class(4097, 8) == 4608);
}

TEST_CASE("attention graphs are shared by batches of nearly equal size") {
  const auto problem = attention_problem(DType::bf16, 33, 500, 12, 768);
  CHECK(problem.samples == 64);
  CHECK(problem.length == 512);
  CHECK(problem.head_size == 64);
  CHECK(problem == attention_problem(DType::bf16, 40, 449, 12, 768));
  CHECK(attention_problem(DType::f16, 0, 0, 1, 8).length == 64);
  CHECK(attention_problem(DType::f16, 1, 1100, 1, 8).length == 1152);
  for (std::int64_t length = 1; length < 5000; length += 7) {
    const auto rounded = attention_problem(DType::f16, 1, length, 1, 8).length;
    CHECK(rounded >= length);
    CHECK(rounded - length < std::max<std::int64_t>(64, length / 8 + 1));
  }
}

TEST_CASE("cudnn: engines that round more than f32 sums are never allowed") {
  const CudnnRules any, exact{.deterministic = true, .full_precision = true};
  CHECK(allowed({CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, any));
  CHECK_FALSE(allowed({CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, exact));
  CHECK_FALSE(allowed({CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, exact));
  CHECK_FALSE(allowed({CUDNN_NUMERICAL_NOTE_WINOGRAD}, any));
  CHECK_FALSE(allowed({CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, any));
  CHECK_FALSE(allowed({CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, any));
  CHECK(allowed({}, exact));
}

TEST_CASE("cudnn: every GPU has kernels for convolutions of every type, also odd sizes") {
  using Kind = Conv2dProblem::Kind;
  struct Sizes {
    std::int64_t n, c, h, o;
    Conv2dGeometry geometry;
  };
  for (const auto& gpu : described_gpus()) {
    CAPTURE(gpu.name);
    const CudnnTarget target(gpu.for_cudnn());
    for (const auto& s : {Sizes{8, 64, 56, 64, {3, 1, 1}}, Sizes{4, 3, 64, 16, {7, 2, 3}},
                          Sizes{2, 5, 11, 7, {3, 2, 1}}, Sizes{2, 256, 14, 512, {1, 2, 0}},
                          Sizes{3, 32, 8, 16, {1, 1, 0}}, Sizes{1, 1, 5, 1, {5, 1, 0}}})
      for (const auto type : {DType::f32, DType::bf16, DType::f16})
        for (const auto kind : {Kind::forward, Kind::backward_data, Kind::backward_filter}) {
          const Shape x{s.n, s.h, s.h, s.c};
          const Shape w{s.o, s.geometry.kernel, s.geometry.kernel, s.c};
          const Conv2dProblem problem(kind, type, x, w, conv2d_output_shape(x, s.o, s.geometry),
                                      s.geometry, 16);
          CAPTURE(problem.text());
          for (const bool deterministic : {false, true}) {
            if (gpu.major != 9 && (deterministic || type == DType::f16)) continue;
            const auto graph = problem.graph();
            const auto rules = problem.rules(deterministic);
            const auto found = candidates(graph, target, rules);
            REQUIRE(!found.empty());
            if (!has_gpu()) CHECK(CudnnPlan::make(graph, target, found.front(), rules).has_value());
            CHECK(!found.front().name().empty());
            for (const auto& one : found) CHECK(allowed(one.notes(), rules));
          }
        }
  }
}

TEST_CASE("cudnn: every GPU has kernels for a convolution's sums and an added input gradient") {
  if (!has_driver_library()) return;
  using Kind = Conv2dProblem::Kind;
  struct Sizes {
    std::int64_t c, h, o;
    Conv2dGeometry geometry;
  };
  std::set<std::string> texts;
  for (const auto& gpu : described_gpus())
    for (const auto& s : {Sizes{3, 224, 64, {7, 2, 3}}, Sizes{256, 56, 64, {1, 1, 0}},
                          Sizes{64, 56, 256, {1, 1, 0}}, Sizes{128, 56, 128, {3, 2, 1}},
                          Sizes{512, 28, 1024, {1, 2, 0}}, Sizes{512, 7, 512, {3, 1, 1}}})
      for (const auto type : {DType::bf16, DType::f16})
        for (const bool deterministic : {false, true})
          for (const auto kind : {Kind::forward, Kind::backward_data}) {
            if (kind == Kind::backward_data && s.c == 3) continue;  // images need no dx
            if (gpu.major != 9 && (deterministic || type == DType::f16)) continue;
            const CudnnTarget target(gpu.for_cudnn());
            CAPTURE(gpu.name);
            const Shape x{256, s.h, s.h, s.c};
            const Shape w{s.o, s.geometry.kernel, s.geometry.kernel, s.c};
            Conv2dProblem problem(kind, type, x, w, conv2d_output_shape(x, s.o, s.geometry),
                                  s.geometry, 16);
            texts.insert(problem.text());
            for (const bool gated : {false, true}) {
              problem.sums = kind == Kind::forward;
              problem.adds = !problem.sums && !gated;
              problem.to_norm = !problem.sums && gated && s.geometry.stride == 1;
              problem.onto = problem.to_norm && s.geometry.kernel == 1;
              texts.insert(problem.text());
              CAPTURE(problem.text());
              const auto found = candidates(problem.graph(), target, problem.rules(deterministic));
              REQUIRE(!found.empty());
              // Without a GPU, a compiled kernel cannot be loaded.
              if (!found.front().compiles())
                CHECK(CudnnPlan::make(problem.graph(), target, found.front(),
                                      problem.rules(deterministic)));
            }
          }
  CHECK(texts.size() == 2 * (6 * 2 + 5 * 2 + 3));
}

TEST_CASE("cudnn: f32 uses tensor cores only if TF32 is allowed") {
  const CudnnTarget h200(h200_for_cudnn());
  const Shape x{8, 56, 56, 64}, w{64, 3, 3, 64}, y{8, 56, 56, 64};
  std::set<std::string> texts;
  for (const auto kind : {Conv2dProblem::Kind::forward, Conv2dProblem::Kind::backward_data,
                          Conv2dProblem::Kind::backward_filter})
    for (const bool tf32 : {false, true}) {
      const Conv2dProblem problem(kind, DType::f32, x, w, y, {3, 1, 1}, 16, tf32);
      CAPTURE(problem.text());
      const auto found = candidates(problem.graph(), h200, problem.rules(false));
      CHECK(!found.empty());
      CHECK(tf32 == std::any_of(found.begin(), found.end(), [](const CudnnCandidate& one) {
              const auto notes = one.notes();
              return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_TENSOR_CORE) !=
                     notes.end();
            }));
      texts.insert(problem.text());
    }
  CHECK(texts.size() == 6);
  CHECK_FALSE(
      Conv2dProblem(Conv2dProblem::Kind::forward, DType::bf16, x, w, y, {3, 1, 1}, 16, true).tf32);
}

TEST_CASE("cudnn: every GPU has kernels for our batch norm graphs") {
  if (!has_driver_library()) return;
  for (const auto& gpu : described_gpus()) {
    CAPTURE(gpu.name);
    const CudnnTarget target(gpu.for_cudnn());
    for (const auto type : {DType::f32, DType::bf16, DType::f16})
      for (const auto& tail : {NormTail{}, NormTail{.residual = true}, NormTail{.relu = false}}) {
        const NormExtents extents{type, 77, 64, 16};
        CAPTURE(tail.text());
        CHECK(!candidates(norm_graph(extents, tail, 1e-5f), target, {}).empty());
        CHECK(!candidates(norm_graph(extents, tail, {}), target, {}).empty());
        CHECK(!candidates(norm_backward_graph(extents, tail), target, {}).empty());
      }
  }
}

TEST_CASE("cudnn: attention with dropout can be compiled") {
  if (!has_driver_library()) return;
  const CudnnTarget h200(h200_for_cudnn());
  auto problem = attention_problem(DType::bf16, 32, 512, 16, 1024, 0.1);
  const CudnnRules rules{.workspace_bytes = std::size_t{8} << 30};
  for (const bool forward : {true, false}) {
    problem.row_stride = 3 * 1024;
    const auto graph = forward ? attention_forward_graph(problem)
                               : attention_backward_graph(problem, dq_sums_for(problem, 9, false));
    const auto found = candidates(graph, h200, rules);
    REQUIRE(!found.empty());
    // Without a GPU the plan cannot be loaded, but no earlier step may fail.
    const bool result = CudnnPlan::make(graph, h200, found.front(), rules).has_value();
    char error[512] = "";
    if (!result) cudnnGetLastErrorString(error, sizeof error);
    INFO(error);
    CHECK((result || std::string_view(error).starts_with("cuLibraryLoadData")));
  }
}

TEST_CASE("refusals: the first one of each kind is reported once") {
  const LibraryUse done{"cuDNN", "conv2d forward f32 n 1", 3, ""};
  const LibraryUse refused{"cuDNN", "attention forward bf16 samples 2", 0, "it proposes no engine"};
  auto longer = refused, backward = refused, other = refused;
  longer.problem = "attention forward bf16 samples 4";
  backward.problem = "attention backward bf16 samples 2";
  other.name = "cuBLASLt";
  RefusalNews news;
  CHECK(news.new_sentences({done}).empty());
  CHECK(news.new_sentences({done, refused, longer}) ==
        std::vector<std::string>{"cuDNN refused attention forward bf16 samples 2 (it proposes no "
                                 "engine): other kernels do it, slower"});
  CHECK(news.new_sentences({refused, longer, done}).empty());
  CHECK(news.new_sentences({refused, backward, other}).size() == 2);
  CHECK(to_text(done) == "cuDNN did conv2d forward f32 n 1, 3x");
  CHECK(LibraryUse{"cuBLASLt", "gemm", 0, ""}.kind() == "gemm");
}

TEST_CASE("cudnn: an unsupported graph has no candidates, and an invalid one throws") {
  const CudnnTarget h200(h200_for_cudnn());
  const auto odd = attention_problem(DType::bf16, 1, 64, 1, 20);  // heads of 20 columns
  CHECK(candidates(attention_forward_graph(odd), h200, {}).empty());
  const Conv2dProblem wrong(Conv2dProblem::Kind::forward, DType::f32, {1, 4, 4, 4}, {4, 1, 1, 8},
                            {1, 4, 4, 4}, {1, 1, 0}, 16);
  CHECK_THROWS_AS((void)wrong.graph(), const CudaError&);
  CudnnGraph graph;
  const Dims extents{1, 4, 4, 4};
  CHECK_THROWS_AS(graph.pointwise(CUDNN_POINTWISE_EXP, CudnnTensor{77, extents, extents}, {},
                                  graph.inner(extents, nhwc_strides(extents))),
                  const Error&);
  CHECK_THROWS_AS(CudnnTarget("{}"), const CudaError&);
}
