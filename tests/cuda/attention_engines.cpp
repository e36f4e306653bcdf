// cuDNN's engines for attention on described GPUs, and the sentences about passes without an engine.
#include <dhp/cuda/cudnn_attention.hpp>
#include <tests/cuda/described_device.hpp>
#include <tests/support/tensors.hpp>

using namespace dhp::detail::cuda;

TEST_CASE("attention: cuDNN's engines are known for each GPU, and gaps are reported") {
  if (!has_driver_library()) return;
  // The engines of cuDNN 9.19, as in docs/gpu.md, for heads of up to 128 columns and of 256.
  const auto expected = [](const DescribedGpu& gpu, int size) {
    const bool hopper = gpu.major == 9;
    return concat("yes / ", hopper || size < 256 ? "yes" : "-", " / ", hopper ? "yes" : "-");
  };
  const auto words = [](const AttentionEngines& timed, const AttentionEngines& fixed) {
    const auto word = [](std::size_t count) { return count > 0 ? "yes" : "-"; };
    return concat(word(timed.forward), " / ", word(timed.backward), " / ", word(fixed.backward));
  };
  for (const auto& gpu : described_gpus()) {
    CAPTURE(gpu.name);
    const CudnnTarget target(gpu.for_cudnn());
    for (const int size : {64, 256}) {  // causal with shared keys: the same engines
      auto problem = attention_problem(DType::bf16, 32, 512, 16, 16 * size, 0.1);
      problem.key_heads = 4;
      problem.causal = true;
      const auto found = words(attention_engines(problem, target, gpu.major, false),
                               attention_engines(problem, target, gpu.major, true));
      if (cudnnGetVersion() / 100 == 919) CHECK(found == expected(gpu, size));
    }
    const AttentionGpu as_asked{gpu.name,  gpu.major,
                                gpu.minor, gpu.multiprocessors,
                                1.7e9,     static_cast<std::size_t>(gpu.memory_bytes)};
    for (const int size : {40, 64, 256})
      for (const auto type : {DType::bf16, DType::f16})
        for (const double dropout : {0.0, 0.1})
          for (const int stride : {0, 48 * size}) {
            if (size != 64 && (type == DType::f16 || stride == 0)) continue;
            auto problem = attention_problem(type, 32, 512, 16, 16 * size, dropout);
            problem.row_stride = stride;
            CAPTURE(problem.text("any"));
            const auto timed = attention_engines(problem, target, gpu.major, false),
                       fixed = attention_engines(problem, target, gpu.major, true);
            CHECK(timed.forward == fixed.forward);
            const auto found = words(timed, fixed);
            if (cudnnGetVersion() / 100 == 919) CHECK(found == expected(gpu, size));
            if (type == DType::f16 || stride == 0) continue;
            for (const bool deterministic : {false, true}) {
              const auto& has = deterministic ? fixed : timed;
              std::size_t sentences = 0;
              const auto refusal = message_of([&] {
                sentences = attention_shortfalls(problem, target, as_asked, deterministic).size();
              });
              CHECK((refusal == "no error") == (has.all() || dropout == 0));
              if (dropout == 0) CHECK(sentences == (has.forward == 0) + (has.backward == 0));
            }
          }
  }
}

TEST_CASE("attention: a missing cuDNN engine is reported with its cost and a way out") {
  if (!has_driver_library()) return;
  const auto gpu = described_gpus()[1];
  const CudnnTarget a100(gpu.for_cudnn());
  const AttentionGpu as_asked{"A100", 8, 0, 108, 1.41e9, std::size_t{80} << 30};
  auto problem = attention_problem(DType::bf16, 32, 512, 16, 1024);
  const auto shortfalls = [&](const AttentionGpu& on, bool deterministic) {
    return attention_shortfalls(problem, a100, on, deterministic);
  };
  CHECK(shortfalls(as_asked, false).empty());
  const auto in_order = shortfalls(as_asked, true);
  if (cudnnGetVersion() / 100 == 919) {
    REQUIRE(in_order.size() == 1);
    CHECK(in_order[0] ==
          concat("cuDNN ", cudnnGetVersion(),
                 " has no engine for attention backward in order bf16 samples 32 heads 16 length "
                 "512 size 64 on A100 (compute capability 8.0): a kernel of dhp does "
                 "it, in about 1.1 ms per layer and micro-batch; cuDNN does it without "
                 "--deterministic and without a tensor axis"));
  }
  auto many = attention_problem(DType::bf16, 512, 1024, 32, 32 * 128);
  many.key_heads = 8;
  many.causal = true;
  const auto of_many = attention_shortfalls(many, a100, as_asked, false);
  REQUIRE(of_many.size() == 1);
  CHECK(
      of_many[0].starts_with("the scratch for gradients by heads of 16384 MiB is too large for "
                             "cuDNN for attention backward bf16 samples 512"));
  problem.dropout = 0.1;
  CHECK(message_of([&] { (void)shortfalls(as_asked, true); })
            .ends_with(", so it cannot draw the dropout: run without --library-dropout "
                       "(CudaOptions::library_dropout)"));
}

TEST_CASE("attention: dq is summed in rows only if that layout is known to work") {
  auto problem = attention_problem(DType::bf16, 2, 64, 2, 128);
  for (const auto& gpu : described_gpus()) {
    CAPTURE(gpu.name);
    CHECK(dq_sums_for(problem, gpu.major, true) == DqSums::none);
    CHECK((dq_sums_for(problem, gpu.major, false) == DqSums::rows) ==
          (gpu.major == 9 || gpu.major == 10));
    problem.row_stride = 3 * 128;
    CHECK(dq_sums_for(problem, gpu.major, false) == DqSums::dense);
    CHECK(needs_dense_matrices(problem, gpu.major) == (gpu.major == 12));
    problem.row_stride = 0;
    CHECK_FALSE(needs_dense_matrices(problem, gpu.major));
  }
  std::set<std::string> texts;
  for (const auto sums : {DqSums::none, DqSums::rows, DqSums::dense})
    texts.insert(backward_text(problem, sums));
  CHECK(texts.size() == 3);
  problem.head_size = 40;
  CHECK(dq_sums_for(problem, 9, false) == DqSums::dense);
}

TEST_CASE("attention: different problems have different texts") {
  const AttentionProblem one{.samples = 2, .heads = 3, .length = 64, .head_size = 8};
  std::set<std::string> texts{one.text("forward"), one.text("backward")};
  auto other = one;
  other.dropout = 0.1;
  texts.insert(other.text("forward"));
  other.dropout = std::nextafter(0.1, 1.0);
  texts.insert(other.text("forward"));
  other.type = CUDNN_DATA_HALF;
  texts.insert(other.text("forward"));
  other.row_stride = 72;
  texts.insert(other.text("forward"));
  other.key_heads = 1;
  texts.insert(other.text("forward"));
  other.causal = true;
  texts.insert(other.text("forward"));
  CHECK(texts.size() == 8);
  CHECK(one.text("forward") == "attention forward bf16 samples 2 heads 3 length 64 size 8");
}
