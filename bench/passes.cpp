// Operations that pass over memory, on one thread: their speed as a share of the speed of copying as many bytes. An
// operation and its copy take turns; the fastest time of each counts. Memory allows 1 at most; random numbers,
// attention's products and transcendental functions cost more than their bytes. Usage: bench_passes [TYPE], where TYPE,
// of activations, is f32, bf16 or f16
#include <bench/program.hpp>
#include <dhp/cpu.hpp>

#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace dhp;
using bench::thread_seconds;

class Bench {
 public:
  Bench(Cpu& dev, DType of) : type(of), dev_(dev), from_(most), to_(most) {}

  const DType type;  ///< of activations

  /// tensors: all tensors that the operation reads or writes, each once.
  void row(const char* name, const std::vector<ConstView<Cpu>>& tensors,
           const std::function<void()>& work) {
    std::size_t bytes = 0;
    for (const auto& tensor : tensors) bytes += tensor.size_bytes();
    const auto half = std::min(bytes / 2, most);
    double ours = 1e30, copy = 1e30, spent = 0;
    for (int round = 0; round < 6 || (round < 60 && spent < 0.3); ++round) {
      const double now = thread_seconds(work);
      const double copied = thread_seconds([&] { std::memcpy(to_.data(), from_.data(), half); });
      ours = std::min(ours, now);
      copy = std::min(copy, copied);
      spent += now + copied;
    }
    copy *= static_cast<double>(bytes) / 2 / static_cast<double>(half);
    std::printf("%-34s %8.1f MB %9.3f ms %6.1f GB/s   %5.2f of a copy\n", name,
                1e-6 * static_cast<double>(bytes), 1e3 * ours,
                1e-9 * static_cast<double>(bytes) / ours, copy / ours);
  }
  /// Returns random activations.
  [[nodiscard]] Tensor<Cpu> random(const Shape& shape) {
    Tensor<Cpu> result(dev_, type, shape);
    cast(dev_, random_f32(shape), result.mut());
    return result;
  }
  [[nodiscard]] Tensor<Cpu> random_f32(const Shape& shape) {
    Tensor<Cpu> result(dev_, DType::f32, shape);
    const RandomStream stream{.seed = ++seed_};
    for (std::int64_t at = 0; at < shape.count(); ++at)
      result.mut().template data<float>()[at] =
          static_cast<float>(stream.uniform(static_cast<std::uint64_t>(at)) * 2 - 1);
    return result;
  }
  [[nodiscard]] Tensor<Cpu> integers(std::int64_t count, std::int64_t below) {
    std::vector<std::int32_t> values;
    const RandomStream stream{.seed = ++seed_};
    for (std::int64_t at = 0; at < count; ++at)
      values.push_back(static_cast<std::int32_t>(stream.bits(static_cast<std::uint64_t>(at)) %
                                                 static_cast<std::uint64_t>(below)));
    return Tensor<Cpu>::from_host(dev_, {count}, values);
  }

 private:
  static constexpr std::size_t most = std::size_t{256} << 20;
  Cpu& dev_;
  std::vector<std::byte> from_, to_;
  std::uint64_t seed_ = 0;
};

// Operations on the activations of BERT-base: 8 samples of 512 tokens.
void transformer(Cpu& dev, Bench& bench) {
  constexpr std::int64_t rows = 4096, columns = 768, words = 30522;
  const Shape shape{rows, columns};
  const auto x = bench.random(shape), dy = bench.random(shape), residual = bench.random(shape);
  const auto gamma = bench.random_f32({columns}), beta = bench.random_f32({columns});
  Tensor<Cpu> y(dev, bench.type, shape), dx(dev, bench.type, shape), sum(dev, bench.type, shape);
  Tensor<Cpu> mean(dev, DType::f32, {rows}), inv_std(dev, DType::f32, {rows});
  Tensor<Cpu> dgamma(dev, DType::f32, {columns}), dbeta(dev, DType::f32, {columns});
  Tensor<Cpu> other(dev, bench.type == DType::f32 ? DType::bf16 : DType::f32, shape);
  const DropoutOptions drops{.probability = 0.1, .random = {.seed = 1}, .total_columns = columns};

  bench.row("add", {x, residual, y}, [&] { add(dev, x, residual, y.mut()); });
  bench.row("scale", {y, y}, [&] { scale(dev, 0.999, y.mut()); });
  bench.row("cast between f32 and 16 bits", {x, other}, [&] { cast(dev, x, other.mut()); });
  bench.row("gelu forward", {x, y}, [&] { activation_forward(dev, Activation::gelu, x, y.mut()); });
  bench.row("gelu backward", {x, dy, dx},
            [&] { activation_backward(dev, Activation::gelu, x, dy, dx.mut()); });
  bench.row("swiglu forward", {x, residual, y},
            [&] { detail::swiglu_forward(dev, x, residual, y.mut()); });
  bench.row("swiglu backward", {dy, x, residual, dx, sum},
            [&] { detail::swiglu_backward(dev, dy, x, residual, dx.mut(), sum.mut()); });
  bench.row("dropout", {x, y}, [&] { dropout(dev, x, {}, drops, y.mut()); });
  bench.row("layer norm forward", {x, y}, [&] {
    layer_norm_forward(dev, x, gamma, beta, 1e-12, y.mut(), mean.mut(), inv_std.mut());
  });
  bench.row("layer norm backward", {dy, x, dx}, [&] {
    layer_norm_backward(dev, dy, x, gamma, mean, inv_std, dx.mut(), dgamma.mut(), dbeta.mut(), 0);
  });
  bench.row("residual layer norm forward", {x, residual, sum, y}, [&] {
    residual_layer_norm_forward(dev, x, residual, {}, drops, gamma, beta, 1e-12, sum.mut(), y.mut(),
                                mean.mut(), inv_std.mut());
  });
  bench.row("residual layer norm backward", {dy, sum, dx, y}, [&] {
    residual_layer_norm_backward(dev, dy, sum, gamma, mean, inv_std, {}, drops, y.mut(), dx.mut(),
                                 dgamma.mut(), dbeta.mut(), 0);
  });
  bench.row("column sums", {x}, [&] { column_sums(dev, x, dgamma.mut(), 0); });

  const auto chosen = bench.integers(rows, rows);
  bench.row("gather rows", {x, y}, [&] { gather_rows(dev, x, chosen, y.mut()); });
  auto bits = Tensor<Cpu>::zeros(dev, DType::i64, {1});
  bench.row("fingerprint", {x}, [&] { fingerprint(dev, x, 0, bits.mut()); });

  const auto ids = bench.integers(rows, words);
  const auto table = bench.random({words, columns});
  Tensor<Cpu> dtable(dev, DType::f32, table.shape());
  bench.row("embedding forward", {x, y}, [&] { embedding_forward(dev, table, ids, 0, y.mut()); });
  bench.row("embedding backward", {dy, dx, dx},
            [&] { embedding_backward(dev, dy, ids, 0, dtable.mut(), 1); });

  const auto logits = bench.random({512, words});
  const auto labels = bench.integers(512, words);
  const CrossEntropyOptions options{.classes = words};
  Tensor<Cpu> most(dev, DType::f32, {512}), sums(dev, DType::f32, {3, 512});
  Tensor<Cpu> dlogits(dev, bench.type, logits.shape());
  const auto one = Tensor<Cpu>::from_host(dev, {1}, std::vector<double>{1});
  bench.row("cross-entropy maxima", {logits},
            [&] { detail::cross_entropy_max(dev, logits, options, most.mut()); });
  bench.row("cross-entropy sums", {logits},
            [&] { detail::cross_entropy_sums(dev, logits, labels, most, options, sums.mut()); });
  bench.row("cross-entropy backward", {logits, dlogits}, [&] {
    detail::cross_entropy_backward(dev, logits, most, sums, labels, options, one, dlogits.mut());
  });
}

// Attention of one layer of BERT-base, on the same samples.
void attention(Cpu& dev, Bench& bench) {
  constexpr std::int64_t samples = 8, length = 512, rows = samples * length, columns = 768;
  std::vector<std::int32_t> starts(samples + 1), lengths(samples, length);
  std::vector<std::int64_t> numbers(rows);
  for (std::int32_t sample = 0; sample <= samples; ++sample)
    starts[static_cast<std::size_t>(sample)] = sample * static_cast<std::int32_t>(length);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto offsets = Tensor<Cpu>::from_host(dev, {samples + 1}, starts);
  const auto tokens = Tensor<Cpu>::from_host(dev, {samples}, lengths);
  const auto row_numbers = Tensor<Cpu>::from_host(dev, {rows}, numbers);
  const Sequences<Cpu> sequences{offsets, tokens, row_numbers, length};
  AttentionOptions options{.heads = 12, .total_heads = 12};
  const Shape shape{rows, columns};
  auto q = bench.random(shape);
  const auto k = bench.random(shape), v = bench.random(shape), dy = bench.random(shape);
  Tensor<Cpu> y(dev, bench.type, shape), logsumexp(dev, DType::f32, {options.heads, rows});
  Tensor<Cpu> dq(dev, bench.type, shape), dk(dev, bench.type, shape), dv(dev, bench.type, shape);
  bench.row("attention forward", {q, k, v, y},
            [&] { attention_forward(dev, q, k, v, sequences, options, y.mut(), logsumexp.mut()); });
  bench.row("attention backward", {dy, q, k, v, y, dq, dk, dv}, [&] {
    attention_backward(dev, dy, q, k, v, y, logsumexp, sequences, options, dq.mut(), dk.mut(),
                       dv.mut());
  });
  const auto positions = bench.integers(rows, length);
  bench.row("rotary positions", {q, q},
            [&] { detail::rotary(dev, q.mut(), positions, {.heads = options.heads}); });

  options.causal = true;
  const auto cache = bench.random({2, samples, length, columns});
  const auto next = bench.random({samples, columns});
  Tensor<Cpu> found(dev, bench.type, next.shape());
  const auto last =
      Tensor<Cpu>::from_host(dev, {samples}, std::vector<std::int32_t>(samples, length - 1));
  bench.row("attention to a cache", {cache},
            [&] { detail::attention_step(dev, next, cache, last, options, found.mut()); });
}

// Operations on a layer of ResNet-50's first stage: 8 images.
void convolutional(Cpu& dev, Bench& bench) {
  const Shape shape{8, 56, 56, 256};
  const auto x = bench.random(shape), dy = bench.random(shape);
  const auto vector = [&] { return bench.random_f32({256}); };
  const auto mean = vector(), inv_std = vector(), gamma = vector(), beta = vector();
  const detail::BatchNormVectors<Cpu> vectors{mean, inv_std, gamma, beta};
  Tensor<Cpu> y(dev, bench.type, shape), dx(dev, bench.type, shape);
  auto sum = vector(), other = vector();
  bench.row("batch norm deviations", {x},
            [&] { detail::batch_norm_squared_deviations(dev, x, mean, sum.mut()); });
  bench.row("batch norm and ReLU", {x, y},
            [&] { detail::batch_norm_apply(dev, x, vectors, {}, true, y.mut()); });
  bench.row("batch norm backward sums", {dy, x}, [&] {
    detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), other.mut());
  });
  bench.row("batch norm, residual, backward sums", {dy, y, x, dx}, [&] {
    detail::batch_norm_backward_sums(dev, dy, x, vectors, true, sum.mut(), other.mut(), y,
                                     dx.mut());
  });
  bench.row("batch norm backward", {dy, x, dx}, [&] {
    detail::batch_norm_backward_apply(dev, dy, x, vectors, true, sum, other, 25088, dx.mut());
  });

  const Shape image{8, 112, 112, 64};
  const PoolGeometry pool{.kernel = 3, .stride = 2, .padding = 1};
  const auto wide = bench.random(image);
  const auto small = pool_output_shape(image, pool);
  Tensor<Cpu> pooled(dev, bench.type, small), back(dev, bench.type, image);
  Tensor<Cpu> index(dev, DType::i32, small);
  bench.row("max pool forward", {wide, pooled, index},
            [&] { max_pool_forward(dev, wide, pool, pooled.mut(), index.mut()); });
  bench.row("max pool backward", {pooled, index, back},
            [&] { max_pool_backward(dev, pooled, index, pool, back.mut()); });
  Tensor<Cpu> average(dev, bench.type, {8, 256});
  bench.row("average pool forward", {x},
            [&] { global_average_pool_forward(dev, x, average.mut()); });
  bench.row("average pool backward", {dx},
            [&] { global_average_pool_backward(dev, average, dx.mut()); });
}

// Optimizer operations on ten million parameters.
void parameters(Cpu& dev, Bench& bench) {
  constexpr std::int64_t count = 10'000'000;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const auto weight = build.parameter({.name = "w", .shape = {count}});
  ParameterStore<Cpu> store(dev, {weight}, {});
  store.begin_gradients(dev);
  const auto gradient = bench.random_f32({count});
  weight->accumulate(dev, [&](View<Cpu> to, double) { cast(dev, gradient, to); });
  store.complete_gradients(dev, {0, store.size()});
  StepState state;
  state.learning_rate = 1e-3;
  const auto on_device = make_step_state(dev, state);
  const std::vector<ConstView<Cpu>> moved(3, gradient);  // weights (read and written) and gradients
  // again: buffers that layer-wise rates read before the weights can change.
  const auto with_state = [&](std::size_t buffers, std::size_t again = 0) {
    auto all = moved;
    all.insert(all.end(), 2 * buffers + again, gradient);
    return all;
  };
  Sgd<Cpu> sgd(dev, store, {.momentum = 0.9});
  bench.row("SGD with momentum", with_state(1), [&] { sgd.apply(dev, on_device); });
  AdamW<Cpu> adamw(dev, store, {});
  bench.row("AdamW", with_state(2), [&] { adamw.apply(dev, on_device); });
  Norms<Cpu> norms({}, {}, 1);
  const auto squares = norms.gradient_squares(dev, store);
  const auto both_halves = [&](Optimizer<Cpu>& optimizer) {
    optimizer.prepare(dev, squares, on_device);
    optimizer.apply(dev, on_device);
  };
  detail::Lars<Cpu> lars(dev, store, norms, {});
  bench.row("LARS", with_state(1, 1), [&] { both_halves(lars); });
  detail::Lamb<Cpu> lamb(dev, store, norms, {});
  bench.row("LAMB", with_state(2, 4), [&] { both_halves(lamb); });

  Tensor<Cpu> total(dev, DType::f64, {1});
  bench.row("sum of squares", {gradient}, [&] { sum_of_squares(dev, gradient, total.mut()); });
  auto high = Tensor<Cpu>::zeros(dev, DType::i64, {count});
  auto low = Tensor<Cpu>::zeros(dev, DType::i64, {count});
  auto overflow = Tensor<Cpu>::zeros(dev, DType::i32, {1});
  bench.row("exact sums", {gradient, high, high, low, low},
            [&] { exact_accumulate(dev, gradient, high.mut(), low.mut(), overflow.mut()); });
  Tensor<Cpu> bits(dev, DType::u8, {detail::sign_bytes(count)});
  auto values = bench.random_f32({count});
  bench.row("pack signs", {gradient, bits}, [&] { detail::pack_signs(dev, gradient, bits.mut()); });
  bench.row("add signs", {bits, values, values},
            [&] { detail::add_signs(dev, bits, total, 0.0, values.mut()); });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc <= 2, "bench_passes [TYPE]", [&] {
    Cpu dev({.threads = 1});
    const std::string name = argc < 2 ? "f32" : argv[1];
    const auto type = name == "bf16" ? DType::bf16 : name == "f16" ? DType::f16 : DType::f32;
    check(name == name_of(type), "type \"", name, "\" is not f32, bf16 or f16");
    Bench bench(dev, type);
    transformer(dev, bench);
    attention(dev, bench);
    convolutional(dev, bench);
    parameters(dev, bench);
  });
}
