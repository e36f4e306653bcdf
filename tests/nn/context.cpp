// The context axis: in layouts with it, a decoder's losses and gradients are those of the serial run.
#include <dhp/cpu.hpp>
#include <dhp/nn/cross_entropy.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/nn/embedding.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/residual.hpp>
#include <dhp/nn/rms_norm.hpp>
#include <dhp/nn/self_attention.hpp>
#include <dhp/nn/sequential.hpp>
#include <tests/parallel/layouts.hpp>

namespace {

constexpr std::int64_t vocabulary = 11, hidden = 24, longest = 13;

struct Variant {
  bool causal = true, padded = false, recomputed = false, heads = false;
};

// The last norm, the head, and the cross-entropy of the labels.
class Head {
 public:
  explicit Head(ModelBuilder<Cpu>& build)
      : linear_(build, "head", {.in = hidden, .out = vocabulary}), entropy_(build, vocabulary) {}
  [[nodiscard]] std::vector<std::string> term_names() const { return {"tokens"}; }
  void forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape, View<Cpu> totals) {
    entropy_.forward(dev, linear_.forward(dev, std::move(x), tape),
                     tape.batch().at("labels").view(), tape, totals.as({loss_fields}));
  }
  Tensor<Cpu> backward(Cpu& dev, ConstView<Cpu> scales, Tape<Cpu>& tape) {
    auto dy = entropy_.backward(dev, tape.batch().at("labels").view(), scales.slice(0, 1), tape);
    return linear_.backward(dev, std::move(dy), tape);
  }
  Tensor<Cpu> predict(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    return linear_.forward(dev, std::move(x), tape);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Cpu>& batch) const {
    return linear_.flops(in, batch);
  }
  void parameters(ParameterList<Cpu>& out) const {
    out.insert(out.end(), linear_.weights().begin(), linear_.weights().end());
    out.insert(out.end(), linear_.biases().begin(), linear_.biases().end());
  }

 private:
  Linear<Cpu> linear_;
  CrossEntropy<Cpu> entropy_;
};

Model<Cpu> decoder(ModelBuilder<Cpu>& build, const Variant& variant) {
  build.place({{"words.weight", Placement::words},
               {"*.{query,key,value}.weight", Placement::heads},
               {"*.output.weight", Placement::rows},
               {"*", Placement::replicated}},
              1);
  Model<Cpu> model;
  model.add("words",
            Embedding<Cpu>(build, "words",
                           {.entries = vocabulary, .columns = hidden, .ids = "token_ids"}));
  for (const std::string block : {"one", "two"}) {
    Sequential<Cpu> body;
    body.add("norm", RmsNorm<Cpu>(build, block + ".norm", hidden, 1e-5));
    body.add("self", SelfAttention<Cpu>(build, block,
                                        {.heads = 6,
                                         .columns = hidden,
                                         .max_length = longest,
                                         .dropout = 0.2,
                                         .key_heads = 3,
                                         .causal = variant.causal,
                                         .rotary_base = 50,
                                         .bias = false,
                                         .exchange_heads = variant.heads}));
    body.add("output", Linear<Cpu>(build, block + ".output", {.in = hidden, .out = hidden}));
    body.add("dropout", Dropout<Cpu>(build, 0.1));
    Residual<Cpu> half(std::move(body));
    if (variant.recomputed) model.add(block, recompute<Cpu>(std::move(half)));
    else model.add(block, std::move(half));
  }
  model.loss = Head(build);
  return model;
}

// Samples of uneven lengths, some of one token; some labels are -1.
MicroBatch<Cpu> batch_of(Cpu& dev, int step, std::int64_t k, const Variant& variant) {
  const std::vector<std::vector<std::int32_t>> lengths{
      {13, 1, 6}, {1, 1, 1}, {9, 12, 2}, {7, 3, 5}};
  const auto& mine = lengths[static_cast<std::size_t>((k + step) % 4)];
  std::vector<std::int32_t> ids, labels, positions, offsets{0};
  std::vector<std::int64_t> numbers;
  std::int64_t counted = 0;
  for (std::size_t n = 0; n < mine.size(); ++n) {
    const auto first = (k * 3 + static_cast<std::int64_t>(n)) * longest;
    for (std::int64_t t = 0; t < (variant.padded ? longest : mine[n]); ++t) {
      const auto token = static_cast<std::int32_t>((first * 5 + t * t * 3 + step) % vocabulary);
      const bool counts = t < mine[n] && token % 4 != 1;
      ids.push_back(token);
      labels.push_back(counts ? (token * 7 + 2) % vocabulary : -1);
      counted += counts ? 1 : 0;
      positions.push_back(static_cast<std::int32_t>(t));
      numbers.push_back(first + t);
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
  }
  MicroBatch<Cpu> batch;
  batch.index = k;
  batch.first_sample = 3 * k;
  batch.samples = 3;
  const auto put = [&](const char* name, const auto& values) {
    batch.side.emplace_back(name, tensor_of(dev, values));
  };
  put("token_ids", ids);
  put("labels", labels);
  put("positions", positions);
  put("row_numbers", numbers);
  put("offsets", offsets);
  put("lengths", mine);
  batch.counts = {{"tokens", counted}};
  return batch;
}

RunResult trained(const Layout& layout, RunSettings settings, const Variant& variant = {}) {
  settings.micro_batches = 7;
  settings.steps = 2;
  return run_layout<Cpu>(
      layout, settings, [&](auto& build) { return decoder(build, variant); },
      [&](Cpu& dev, int step, std::int64_t k) { return batch_of(dev, step, k, variant); });
}

const AnySchedule zero_bubble = ZeroBubble{};

}  // namespace

TEST_CASE("context axis: layouts with all other axes give the serial run's numbers") {
  const auto serial = trained({}, {});
  for (const auto& layout :
       {Layout{{.context = 2}}, Layout{{.context = 3}}, Layout{{.context = 8}},
        Layout{{.data = 2, .context = 2}}, Layout{{.tensor = 3, .context = 2}},
        Layout{{.pipeline = 2, .context = 2}, zero_bubble},
        Layout{{.data = 2, .pipeline = 2, .context = 2}}, Layout{{.data = 2, .context = 4}}}) {
    CAPTURE(to_text(layout));
    check_close(serial, trained(layout, {}), 1e-9);
  }
}

TEST_CASE("context axis: padding, recompute and non-causal attention match the serial run") {
  for (const auto& variant :
       {Variant{.padded = true}, Variant{.recomputed = true}, Variant{.causal = false}})
    check_close(trained({}, {}, variant), trained({{.data = 2, .context = 3}}, {}, variant), 1e-9);
}

TEST_CASE("context axis: exchanging rows for heads gives the serial run's numbers") {
  for (const auto& variant : {Variant{.heads = true}, Variant{.padded = true, .heads = true}})
    for (const auto& layout :
         {Layout{{.context = 3}}, Layout{{.pipeline = 2, .context = 3}, zero_bubble}})
      check_close(trained({}, {}, variant), trained(layout, {}, variant), 1e-9);
}

TEST_CASE("context axis: ZeRO shards over data and context ranks") {
  const auto serial = trained({}, {});
  for (const auto stage : {ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
    const RunSettings sharded{.sharding = {.stage = stage, .bucket_bytes = 2048}};
    const auto found = trained({{.data = 2, .context = 2}}, sharded);
    check_losses(serial, found, 1e-9);
    CHECK(difference(serial.values, found.values).worst < 1e-9);
  }
}

TEST_CASE("context axis: exact sums with equal groups have the serial run's bits") {
  for (const auto compute : {DType::f64, DType::bf16})
    for (const auto& variant :
         {Variant{}, Variant{.padded = true, .recomputed = true}, Variant{.causal = false}}) {
      const RunSettings settings{.compute = compute, .deterministic = true, .context_groups = 4};
      const auto serial = trained({}, settings, variant);
      check_losses(serial, trained({}, {.compute = compute}, variant),
                   compute == DType::f64 ? 1e-9 : 5e-2);
      for (const auto& layout :
           {Layout{{.context = 2}}, Layout{{.context = 4}}, Layout{{.data = 2, .context = 4}},
            Layout{{.data = 2, .pipeline = 2, .context = 2}, zero_bubble}}) {
        CAPTURE(to_text(layout));
        check_same_bits(serial, trained(layout, settings, variant));
      }
      auto by_heads = variant;
      by_heads.heads = true;
      auto thirds = settings;
      thirds.context_groups = 6;
      check_same_bits(trained({}, thirds, variant), trained({{.context = 3}}, thirds, by_heads));
    }
}

TEST_CASE("context axis: predictions have the serial run's bits, with a ring or exchanged heads") {
  const auto predicted = [](const Layout& layout, const Variant& variant) {
    std::vector<HostArray> found;
    on_each_rank(
        layout, {}, [&](auto& build) { return decoder(build, variant); },
        [&](Cpu& dev) { return batch_of(dev, 0, 0, variant); },
        [&](Cpu& dev, Mesh<Cpu>& mesh, auto&, auto& trainer) {
          StepBatches<Cpu> mine{.batches = {}, .micro_batches = 4};
          for (int k = 0; k < 4; ++k) mine.batches.push_back(batch_of(dev, 0, k, variant));
          auto arrays = trainer.predict(mine);
          if (mesh.world().rank() == 0) found = std::move(arrays);
        });
    return found;
  };
  for (const auto& variant : {Variant{}, Variant{.heads = true}}) {
    const auto serial = predicted({}, variant);
    CHECK(serial.size() == 4);
    CHECK(predicted({{.context = 3}}, variant) == serial);
  }
}

TEST_CASE("context axis: 16-bit losses stay near the serial run's") {
  const RunSettings narrow{.compute = DType::bf16};
  check_losses(trained({}, narrow), trained({{.context = 2}}, narrow), 2e-2);
}

TEST_CASE("context axis: every token is on one rank, and ranks have equally many pairs") {
  const std::vector<std::int32_t> offsets{0, 24, 25, 40}, lengths{24, 1, 13};
  std::vector<int> seen(40, 0);
  for (int rank = 0; rank < 3; ++rank) {
    const auto runs = detail::context_runs(offsets, lengths, rank, 3);
    std::int64_t rows = 0, tokens = 0, pairs = 0;
    for (std::size_t n = 0; n < runs.size(); ++n)
      for (const auto& run : runs[n]) {
        CHECK(run.row == rows);
        rows += run.rows;
        tokens += run.length;
        for (std::int64_t at = 0; at < run.rows; ++at) {
          ++seen[static_cast<std::size_t>(offsets[n] + run.position + at)];
          CHECK((at < run.length) == (run.position + at < lengths[n]));
          if (n == 0) pairs += run.position + at + 1;
        }
      }
    CHECK(pairs == 100);
    CHECK(detail::rows_of(runs) == rows);
  }
  CHECK(seen == std::vector<int>(40, 1));
}

TEST_CASE(
    "context axis: labels of any type and shape are split, and integers are ignored in padding") {
  Cpu dev;
  MicroBatch<Cpu> whole;
  whole.samples = 1;
  const auto add = [&](const char* name, const Shape& shape, const auto& values) {
    whole.side.emplace_back(name, Tensor<Cpu>::from_host(dev, shape, values));
  };
  add("offsets", {2}, std::vector<std::int32_t>{0, 3});
  add("lengths", {1}, std::vector<std::int32_t>{3});
  add("row_numbers", {3}, std::vector<std::int64_t>{0, 1, 2});
  const auto labels = [&] {
    return detail::context_share(dev, whole, Comm<Cpu>(), {.groups = 2}).at("labels").share();
  };
  add("labels", {3, 1}, std::vector<float>{1.5F, 2, 3});
  CHECK(labels().to_host<float>(dev) == std::vector<float>{1.5F, 0, 2, 3});
  whole.side.pop_back();
  add("labels", {3, 2}, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6});
  CHECK(labels().to_host<std::int32_t>(dev) == std::vector<std::int32_t>{1, 2, -1, -1, 3, 4, 5, 6});
  add("first_rows", {1}, std::vector<std::int32_t>{0});
  CHECK(has(message_of(labels),
            "a context axis splits \"first_rows\" with an i32 for each in \"labels\", which this "
            "batch does not have; choose a layout without it"));
}

TEST_CASE("context axis: unsupported settings are refused") {
  const auto refusal = [](const RunSettings& settings, const Variant& variant = {}) {
    return message_of([&] { (void)trained({{.context = 2}}, settings, variant); });
  };
  CHECK(has(refusal({}, {.heads = true}),
            "3 key heads cannot be exchanged over a context axis of 2; choose a divisor of "
            "their number, fewer tensor groups or ranks"));
  CHECK(has(refusal({.deterministic = true, .context_groups = 3}),
            "cannot be computed in 3 context groups on a context axis of 2: choose"));
  CHECK(has(refusal({.reducer = LocalSgd{}}), "choose a reducer that is not late"));
}
