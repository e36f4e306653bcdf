// Ranks share rows between the layers that the tensor axis splits. BERT, GPT-2 and Llama give the serial run's numbers,
// with exact sums to the bit. Samples may have length 1, and there may be fewer rows than ranks.
#include <dhp/comm/observe/count.hpp>
#include <dhp/train/memory_plan.hpp>
#include <examples/bert/encoder.hpp>
#include <examples/gpt/model.hpp>
#include <tests/parallel/layouts.hpp>
#include <tests/support/gradients.hpp>

namespace {

enum class Kind { bert, classes, gpt_2, llama };
constexpr Kind kinds[] = {Kind::bert, Kind::classes, Kind::gpt_2, Kind::llama};

/// Two packed samples of any length from 1 on, with the side inputs of BERT or of a decoder.
MicroBatch<Cpu> packed(Cpu& dev, std::int64_t k, Kind kind) {
  constexpr std::int64_t lengths[][2] = {{7, 2}, {1, 1}, {2, 1}, {5, 1}, {16, 11}, {9, 1}, {3, 1}};
  std::vector<std::int32_t> ids, positions, segments, offsets{0}, used, labels, first_rows, masked;
  std::vector<std::int64_t> numbers;
  for (std::int64_t sample = 2 * k; sample < 2 * k + 2; ++sample) {
    const auto length = lengths[k % 7][sample % 2];
    first_rows.push_back(static_cast<std::int32_t>(ids.size()));
    for (std::int64_t t = 0; t < length; ++t) {
      if (t % 3 == 0) masked.push_back(static_cast<std::int32_t>(ids.size()));
      ids.push_back(static_cast<std::int32_t>((sample * 5 + t * (t + 1)) % 31));
      labels.push_back(t + 1 < length ? (ids.back() + 7) % 31 : -1);
      positions.push_back(static_cast<std::int32_t>(t));
      segments.push_back(t % 2 == 0 ? 0 : 1);
      numbers.push_back(sample * everything_length + t);
    }
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
    used.push_back(static_cast<std::int32_t>(length));
  }
  MicroBatch<Cpu> batch;
  batch.index = k, batch.first_sample = 2 * k, batch.samples = 2;
  const auto add = [&](const std::string& name, const auto& values) {
    batch.side.emplace_back(name, tensor_of(dev, values));
  };
  add("token_ids", ids);
  add("positions", positions);
  add("segments", segments);
  add("offsets", offsets);
  add("lengths", used);
  add("row_numbers", numbers);
  add("labels", kind == Kind::classes ? std::vector<std::int32_t>{2, 0} : labels);
  add("masked_rows", masked);
  add("masked_labels", std::vector<std::int32_t>(masked.size(), 3));
  add("first_rows", first_rows);
  add("predicted_rows", first_rows);
  add("next_labels", std::vector<std::int32_t>{1, 0});
  const auto counted = std::ssize(ids) - 2;  // the last token has no label
  batch.counts = {{"tokens", counted}, {"masked_tokens", std::ssize(masked)}, {"samples", 2}};
  return batch;
}

struct Described {
  bool shares = true;
  bool recompute = false;
  bool adapters = false;  ///< trains only the adapters
  bool heads = false;     ///< are exchanged on a context axis
};
template <class Config>
Config described(Config config, const Described& how) {
  config.layers = 2, config.hidden = 16, config.heads = 4, config.vocabulary = 31;
  config.positions = config.sequence_length = everything_length;
  config.dropout = 0.1;
  config.recompute = how.recompute;
  config.share_rows = how.shares;
  config.exchange_heads = how.heads;
  return config;
}
template <class Dev>
Model<Dev> model(ModelBuilder<Dev>& build, Kind kind, const Described& how) {
  if (how.adapters) {
    build.train_only(is_of_adapter);
    build.adapt({.layers = {"query", "value", "output.dense", "intermediate.dense", "c_proj",
                            "c_fc", "v_proj", "down_proj", "up_proj", "lm_head"},
                 .rank = 3,
                 .dropout = 0.1});
  }
  if (kind == Kind::classes) {
    examples::PublishedBert bert{.config = described(examples::BertConfig{}, how)};
    bert.labels = {"a", "b", "c"};
    return examples::bert_with(build, bert, examples::BertHead::classes);
  }
  if (kind == Kind::bert) return examples::bert(build, described(examples::BertConfig{}, how));
  auto config = described(examples::GptConfig{}, how);
  if (kind == Kind::llama) {
    config.llama = true, config.tied = false;
    config.heads = 8, config.key_heads = 4, config.inner = 24;
  }
  return examples::gpt(build, config);
}

RunResult run(Kind kind, const Layout& layout, const RunSettings& settings,
              const Described& how = {}) {
  return run_layout(
      layout, settings,
      [&](ModelBuilder<Cpu>& build) {
        auto result = model(build, kind, how);
        if (!how.adapters) build.check_described();
        return result;
      },
      [&](Cpu& dev, int, std::int64_t k) { return packed(dev, k, kind); });
}

const Layout layouts[] = {{{.tensor = 2}},
                          {{.tensor = 4}},
                          {{.tensor = 4, .pipeline = 2}},
                          {{.data = 3, .tensor = 2}, GPipe{}},
                          {{.tensor = 2, .pipeline = 2}, Interleaved{}, 2},
                          {{.data = 2, .tensor = 2, .pipeline = 2}, ZeroBubble{}}};

}  // namespace

TEST_CASE("shared rows: layouts give the serial run's numbers, fp64, also with ZeRO and adapters") {
  const RunSettings settings{.micro_batches = 7};
  for (const auto kind : kinds) {
    CAPTURE(static_cast<int>(kind));
    const auto serial = run(kind, {}, settings, {.shares = false});
    REQUIRE(serial.losses.back() < serial.losses.front());
    for (const auto& layout : layouts) {
      CAPTURE(to_text(layout));
      check_close(serial, run(kind, layout, settings), 1e-9);
    }
    check_close(serial, run(kind, {{.tensor = 4}}, settings, {.recompute = true}), 1e-9);
    for (const Layout& layout : {Layout{{.tensor = 2, .context = 2}},
                                 Layout{{.tensor = 2, .pipeline = 2, .context = 2}, ZeroBubble{}}})
      if (kind != Kind::classes) check_close(serial, run(kind, layout, settings), 1e-9);
    for (const auto stage : {ZeroStage::gradients, ZeroStage::weights}) {
      auto sharded = settings;
      sharded.sharding = {.stage = stage, .bucket_bytes = 512};
      const auto layout = stage == ZeroStage::weights
                              ? Layout{{.data = 2, .tensor = 2, .pipeline = 2}, ZeroBubble{}}
                              : Layout{{.data = 2, .tensor = 4}};
      const auto found = run(kind, layout, sharded);
      check_losses(serial, found, 1e-9);
      CHECK(difference(serial.values, found.values).worst <= 1e-9);
    }
    const auto alone = run(kind, {}, settings, {.shares = false, .adapters = true});
    check_close(alone, run(kind, {{.tensor = 4}}, settings, {.adapters = true}), 1e-9);
  }
}

TEST_CASE("shared rows: exact sums have the serial run's bits with and without sharing") {
  for (const auto compute : {DType::f32, DType::bf16})
    for (const auto kind : kinds) {
      CAPTURE(static_cast<int>(kind));
      const RunSettings settings{
          .compute = compute, .deterministic = true, .steps = 2, .micro_batches = 7};
      const auto serial = run(kind, {}, settings, {.shares = false});
      for (const auto& layout : layouts) {
        CAPTURE(to_text(layout));
        check_same_bits(serial, run(kind, layout, settings));
      }
      check_same_bits(serial, run(kind, {}, settings));
      check_same_bits(serial, run(kind, {{.tensor = 4}}, settings, {.shares = false}));
      check_same_bits(serial, run(kind, {{.tensor = 2}}, settings, {.recompute = true}));
      const auto alone = run(kind, {}, settings, {.shares = false, .adapters = true});
      check_same_bits(alone, run(kind, {{.tensor = 4}}, settings, {.adapters = true}));
    }
}

TEST_CASE("shared rows: exact sums have the serial run's bits with a context axis too") {
  for (const auto kind : {Kind::bert, Kind::gpt_2, Kind::llama}) {
    CAPTURE(static_cast<int>(kind));
    const RunSettings settings{.compute = DType::f32,
                               .deterministic = true,
                               .context_groups = 4,
                               .steps = 2,
                               .micro_batches = 7};
    const auto serial = run(kind, {}, settings, {.shares = false});
    for (const bool shares : {false, true})
      for (const Layout& layout :
           {Layout{{.context = 4}}, Layout{{.tensor = 2}}, Layout{{.tensor = 2, .context = 2}},
            Layout{{.tensor = 2, .context = 4}}, Layout{{.tensor = 4, .context = 2}},
            Layout{{.tensor = 2, .pipeline = 2, .context = 2}, ZeroBubble{}},
            Layout{{.data = 2, .tensor = 2, .context = 2}}}) {
        CAPTURE(to_text(layout));
        CAPTURE(shares);
        check_same_bits(serial, run(kind, layout, settings, {.shares = shares}));
      }
    const auto alone = run(kind, {}, settings, {.shares = false, .adapters = true});
    check_same_bits(alone, run(kind, {{.tensor = 2, .context = 2}}, settings, {.adapters = true}));
    auto halves = settings;
    halves.groups = 2;
    check_same_bits(run(kind, {}, halves),
                    run(kind, {{.tensor = 2, .context = 2}}, halves, {.heads = true}));
    auto sharded = settings;
    sharded.sharding = {.stage = ZeroStage::weights, .bucket_bytes = 512};
    const auto found = run(kind, {{.data = 2, .context = 4}}, sharded, {.shares = false});
    check_losses(serial, found, 0);
    CHECK(difference(serial.values, found.values).worst == 0);
  }
}

TEST_CASE("shared rows: evaluations and predictions are those of one rank") {
  const auto found = [](Kind kind, int ranks, bool shares) {
    std::vector<std::vector<double>> values;
    on_each_rank(
        {{.tensor = ranks}}, {},
        [&](ModelBuilder<Cpu>& build) { return model(build, kind, {.shares = shares}); },
        [&](Cpu& dev) { return packed(dev, 0, kind); },
        [&](Cpu& dev, auto& mesh, auto& pipeline, auto&) {
          std::vector<MicroBatch<Cpu>> batches;
          for (std::int64_t k = 0; k < 3; ++k) batches.push_back(packed(dev, k, kind));
          Step<Cpu> step;
          step.batches = batches;
          auto all = pipeline.predict(dev, step);
          all.push_back(pipeline.evaluate(dev, step));
          if (mesh.world().rank() != 0) return;
          for (const auto& each : all) values.push_back(widened(dev, each));
        });
    return values;
  };
  for (const auto kind : kinds) {
    const auto alone = found(kind, 1, false);
    for (const int ranks : {2, 4}) {
      const auto shared = found(kind, ranks, true);
      REQUIRE(shared.size() == alone.size());
      for (std::size_t at = 0; at < alone.size(); ++at)
        CHECK(distance(alone[at], shared[at]) < 1e-12);
    }
  }
}

TEST_CASE("shared rows: the bytes of each axis match the formula") {
  constexpr std::int64_t micro_batches = 2, layers = 2, all = micro_batches * 32 * 16 * 8;
  const auto batch = [](Cpu& dev, std::int64_t k) {
    auto result = everything_batch(dev, 0, k, 31);
    result.side.emplace_back("labels", result.at("token_ids").share());
    result.counts.emplace_back("tokens", 32);
    return result;
  };
  for (const auto kind : {Kind::bert, Kind::gpt_2})
    for (const int stages : {1, 2})
      for (const bool shares : {false, true})
        on_ranks_of<Cpu>(4 * stages, [&](Cpu& dev, Comm<Cpu> plain) {
          const auto counts = std::make_shared<CallCounts>();
          const bool first = plain.rank() == 0;
          on_rank(
              dev, counted(dev, std::move(plain), counts), {{.tensor = 4, .pipeline = stages}}, {},
              [&](ModelBuilder<Cpu>& build) { return model(build, kind, {.shares = shares}); },
              [&](Cpu& any) { return batch(any, 0); },
              [&](Cpu&, auto& mesh, auto&, auto& trainer) {
                counts->reset();
                (void)trainer.step(
                    assigned(mesh, micro_batches, [&](std::int64_t k) { return batch(dev, k); }));
                if (!first) return;
                const auto bytes = [&](const CallCounts::Group& group, CallKind of) {
                  return counts->of(group, of).bytes;
                };
                if (stages == 2) {
                  CHECK(bytes({0, 4}, CallKind::send) == (shares ? all / 4 : all));
                  return;
                }
                const auto head = kind == Kind::bert ? Range{0, 1} : Range{1, 2};
                const CallCounts::Group tensor{0, 1, 2, 3};
                CHECK(bytes(tensor, CallKind::reduce_scatter) ==
                      (shares ? (4 * layers + 1 + head.first) * all : 0));
                CHECK(bytes(tensor, CallKind::all_gather) ==
                      (shares ? (6 * layers + 1 + head.last) * all / 4 : 0));
              });
        });
}

TEST_CASE("shared rows: a decoder block keeps the expected bytes for its backward pass") {
  constexpr std::int64_t rows = 64, columns = 64, heads = 8;
  for (const std::int64_t ranks : {1, 2, 4, 8})
    for (const bool shares : {false, true}) {
      Meta dev;
      ModelBuilder<Meta> build(Comm<Meta>::of(MetaComm<Meta>({0, static_cast<int>(ranks)})));
      const examples::GptConfig config{
          .hidden = columns, .heads = heads, .sequence_length = rows, .share_rows = shares};
      build.place(gpt_placements(config));
      auto first = examples::gpt_attention(build, "transformer.h.0", config);
      auto second = examples::gpt_feed_forward(build, "transformer.h.0", config);
      ParameterList<Meta> parameters;
      first.parameters(parameters);
      second.parameters(parameters);
      const ParameterStore<Meta> store(dev, parameters, {});
      const auto batch = tests::token_batch(dev, 1, rows, 11);
      Tape<Meta> tape({}, &batch);
      Tensor<Meta> x(dev, DType::f32, {shares ? rows / ranks : rows, columns});
      (void)second.forward(dev, first.forward(dev, std::move(x), tape), tape);
      // In 16 bits these are rows * columns * (8 + 24 / ranks) bytes: Korthikanti's formula without attention's scores
      // and masks. Added are four statistics of a row, and one for each head. Two layers hold attention's y.
      const auto whole = rows * (4 * columns + 4), split = rows * (12 * columns + heads);
      CHECK(static_cast<std::int64_t>(tape.size_bytes()) ==
            4 * ((shares ? whole / ranks : whole) + split / ranks + rows * columns / ranks));
    }
}

TEST_CASE(
    "context axis: four times the tokens on four ranks need at most 1.1 times the memory of one") {
  const auto most = [](std::int64_t length, int ranks) {
    std::size_t bytes = 0;  // most bytes of any rank
    std::mutex mutex;
    const auto batch = [&](Cpu& dev, std::int64_t k) {
      auto result = tests::token_batch(dev, 1, length, 31);
      result.index = k;
      result.side.emplace_back("labels", result.at("token_ids").share());
      result.counts.emplace_back("tokens", length);
      return result;
    };
    examples::GptConfig config{.layers = 4, .hidden = 64, .heads = 4, .llama = true};
    config.vocabulary = 31, config.key_heads = 2, config.inner = 192;
    config.positions = config.sequence_length = length;
    on_each_rank(
        {{.context = ranks}}, {.compute = DType::f32},
        [&](ModelBuilder<Cpu>& build) { return examples::gpt(build, config); },
        [&](Cpu& dev) { return batch(dev, 0); },
        [&](Cpu& dev, auto& mesh, auto&, auto& trainer) {
          (void)trainer.step(assigned(mesh, 2, [&](std::int64_t k) { return batch(dev, k); }));
          const std::lock_guard lock(mutex);
          bytes = std::max(bytes, dev.memory().max_held_bytes());
        });
    return static_cast<double>(bytes);
  };
  const auto one = most(256, 1), four = most(1024, 4), undivided = most(1024, 1);
  CAPTURE(four / one);
  CHECK(undivided > 2.5 * one);
  CHECK(four <= 1.1 * one);
}
