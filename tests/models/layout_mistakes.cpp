// Ten mistakes that layouts tend to hide. Each is put into one layout: the first step then differs from the serial
// run's, and the trace of values names the layer with the mistake, if it is in a layer.
#include <examples/compare/metrics.hpp>
#include <examples/report/value_trace.hpp>
#include <tests/support/folder.hpp>
#include <tests/support/layouts.hpp>

#include "wrong_parts.hpp"

namespace {

/// A step of a model in a layout, and the mistakes in it.
struct Run {
  Layout layout{};
  ZeroStage sharded = ZeroStage::none;
  std::function<void(Mesh<Cpu>&)> on_mesh = [](auto&) {};
  std::function<Model<Cpu>(ModelBuilder<Cpu>&)> describe = right_model;
  std::variant<Bucketed, CountsAlone::Options> reducer{};
  std::function<void(Cpu&, ParameterStore<Cpu>&, Replicas<Cpu>*)> before_weights = [](auto&, auto&,
                                                                                      auto*) {};
  std::function<void(Cpu&, ParameterStore<Cpu>&, Mesh<Cpu>&)> weights = [](auto&, auto&, auto&) {};
  std::function<Comm<Cpu>(Mesh<Cpu>&)> norm_axis = [](auto& mesh) { return mesh.tensor(); };
};
struct Outcome {
  RunResult result{};
  std::string values{};  // as in a --trace-values file
};

/// Biases begin with 0, so a wrong part of one would look right.
float bias_at(std::int64_t index) { return 0.1F * static_cast<float>(index % 7 - 3); }
void put(Cpu& dev, View<Cpu> to, const std::vector<float>& values) {
  dev.copy_from_host(to.bytes(), reinterpret_cast<const std::byte*>(values.data()),
                     to.size_bytes());
}
void set_biases(Cpu& dev, ParameterStore<Cpu>& store) {
  for (auto& held : store.pieces()) {
    if (!held.piece.name.ends_with(".bias")) continue;
    std::vector<float> values(static_cast<std::size_t>(held.piece.count()));
    for (dhp::detail::Extents at(held.piece); !at.done(); at.next())
      for (std::int64_t k = 0; k < at.now().count; ++k)
        values[static_cast<std::size_t>(at.now().held + k)] = bias_at(at.now().whole + k);
    put(dev, held.data, values);
  }
}
ParameterList<Cpu> named(ParameterStore<Cpu>& store, const std::string& name) {
  ParameterList<Cpu> list;
  for (const auto& each : store.parameters())
    if (each->spec.name == name) list.push_back(each);
  return list;
}

Outcome outcome(const Run& of) {
  const RunSettings settings{
      .compute = DType::f32, .deterministic = true, .steps = 1, .micro_batches = 4};
  Outcome made;
  made.result.skipped.resize(static_cast<std::size_t>(of.layout.mesh.size()));
  std::mutex mutex;
  on_ranks_of<Cpu>(of.layout.mesh.size(), [&](Cpu& dev, Comm<Cpu> world) {
    Mesh<Cpu> mesh(std::move(world), of.layout.mesh);
    of.on_mesh(mesh);
    examples::ValueTrace<Cpu> trace(mesh.tensor_index());
    ModelBuilder<Cpu> build(mesh);
    build.group();
    PipelineParallel stage(dev, trace.traced(of.describe(build)), mesh, {},
                           everything_batch(dev, 0, 0),
                           {.compute = settings.compute,
                            .deterministic = true,
                            .seed = 7,
                            .sharding = {.stage = of.sharded, .bucket_bytes = 512}});
    DataParallel replicas(dev, stage, mesh.data(), of.reducer);
    of.before_weights(dev, stage.store(), replicas.replicas());
    set_biases(dev, stage.store());
    of.weights(dev, stage.store(), mesh);
    Norms<Cpu> norms(of.norm_axis(mesh), mesh.pipeline(), stage.parameters_in_model(),
                     replicas.replicas());
    const auto optimizer = make_optimizer(dev, stage.store(), norms, settings.optimizer);
    Trainer trainer(dev, replicas, mesh, *optimizer, norms,
                    {.learning_rate = {.peak = settings.lr}, .clip = 0.5});
    train_on_rank(
        dev, mesh, stage, trainer, settings,
        [](Cpu& device, int step, std::int64_t k) { return everything_batch(device, step, k); },
        mutex, made.result);
    const auto values = trace.lines(dev, mesh.world(), 1);
    if (mesh.world().rank() == 0) made.values = values;
  });
  return made;
}

/// Captures standard output during its lifetime.
struct CapturedOutput {
  std::ostringstream text;
  std::streambuf* before = std::cout.rdbuf(text.rdbuf());
  CapturedOutput() = default;
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;
  ~CapturedOutput() { std::cout.rdbuf(before); }
};
/// Returns dhp_compare's output for the values of two runs.
std::string comparison(const Outcome& expected, const Outcome& found) {
  const Folder folder;
  for (const auto& [name, of] : {std::pair{"a", &expected}, std::pair{"b", &found}})
    std::ofstream(folder / name) << of->values;
  const CapturedOutput output;
  (void)examples::compare_values(folder / "a", folder / "b", 0);
  return output.text.str();
}

constexpr const char* no_value = "values that both have are the same, to the last bit";
/// Compares a run with the serial one: which numbers of the first step differ, and where the first value differs.
void check_found(const Outcome& expected, const Run& run, bool loss, bool norm,
                 const std::string& where) {
  const auto found = outcome(run);
  REQUIRE(found.result.losses.size() == 1);
  CHECK((found.result.losses != expected.result.losses) == loss);
  CHECK((found.result.norms != expected.result.norms) == norm);
  CHECK_MESSAGE(has(comparison(expected, found), where), comparison(expected, found));
}

const Outcome& serial() {
  static const auto made = outcome({});
  return made;
}
const Layout replicas{{.data = 2}}, tensor{{.tensor = 2}}, stages{{.pipeline = 2}},
    all_axes{{.data = 2, .tensor = 2, .pipeline = 2}};

}  // namespace

TEST_CASE("layout mistakes: a right layout shows no difference") {
  CHECK(serial().result.norms[0] > 0.5);  // above the clip
  for (const auto& layout : {replicas, tensor, stages, all_axes})
    check_found(serial(), {.layout = layout}, false, false, no_value);
  check_found(serial(), {.layout = replicas, .sharded = ZeroStage::weights}, false, false,
              no_value);
}

TEST_CASE("layout mistakes: 1. an exchange of the tensor group is missing") {
  const auto describe = [](ModelBuilder<Cpu>& build) {
    const auto missing = std::make_shared<bool>(false);
    build.tensor = faulty(build.tensor, {.start = [=](Cpu& dev, const Collective<Cpu>& asked) {
                            if (asked.call.kind != CallKind::all_to_all) return false;
                            if (!std::exchange(*missing, false)) return false;
                            dev.copy(asked.out.bytes(), asked.in.bytes(), asked.in.size_bytes());
                            return true;
                          }});
    auto model = right_model(build);
    replace(model.layers[attention], [=](Cpu&, const MicroBatch<Cpu>& batch) {
      *missing = batch.index == 1;
      return batch.share();
    });
    return model;
  };
  check_found(serial(), {.layout = all_axes, .describe = describe}, true, true,
              "micro-batch 1: the output of layer 4, block1.attention; the last");
}

TEST_CASE("layout mistakes: 2. a rank has the wrong part of a bias") {
  const auto weights = [](Cpu& dev, ParameterStore<Cpu>& store, Mesh<Cpu>& mesh) {
    if (mesh.tensor_index() != 1) return;
    for (const auto& piece : named(store, "block1.intermediate.dense.bias")) {
      std::vector<float> values;
      for (std::int64_t at = 0; at < piece->spec.local_shape().count(); ++at)
        values.push_back(bias_at(piece->spec.unsplit_index(at) - piece->spec.shape[0] / 2));
      put(dev, piece->value, values);
    }
  };
  check_found(serial(), {.layout = tensor, .weights = weights}, true, true,
              "micro-batch 0: the output of layer 6, block1.feed_forward; the last");
}

TEST_CASE("layout mistakes: 3. dropout counts the rows of its replica alone") {
  const auto describe = [](ModelBuilder<Cpu>& build) {
    auto model = right_model(build);
    replace(model.layers[feed_forward], [replica = build.data.rank()](Cpu& dev, const auto& batch) {
      auto seen = batch.share();
      for (auto& [name, tensor] : seen.side) {
        if (name != "row_numbers") continue;
        auto numbers = tensor.template to_host<std::int64_t>(dev);
        for (auto& number : numbers) number -= replica * 2 * everything_samples * everything_length;
        tensor = Tensor<Cpu>::from_host(dev, tensor.shape(), numbers);
      }
      return seen;
    });
    return model;
  };
  check_found(serial(), {.layout = replicas, .describe = describe}, true, true,
              "micro-batch 2: the output of layer 6, block1.feed_forward; the last");
}

TEST_CASE("layout mistakes: 4. the norm counts replicated weights twice") {
  const auto twice = [](Mesh<Cpu>& mesh) { return faulty(mesh.tensor(), {.all_first = true}); };
  check_found(serial(), {.layout = tensor, .norm_axis = twice}, false, true, no_value);
}

TEST_CASE("layout mistakes: 5. the gradient of a tied weight is lost between stages") {
  const auto lost = [](Mesh<Cpu>& mesh) {
    mesh.pipeline() = faulty(mesh.pipeline(), {.start = [](Cpu&, const Collective<Cpu>& asked) {
                               return asked.call.dtype == DType::i64;  // exact sums
                             }});
  };
  const Run run{.layout = stages, .on_mesh = lost};
  check_found(serial(), run, false, true, no_value);
  CHECK(difference(serial().result.gradients, outcome(run).result.gradients).tensor ==
        "bert.embeddings.word_embeddings.weight");
}

TEST_CASE("layout mistakes: 6. label smoothing covers the words of one rank only") {
  const auto describe = [](bool local) {
    return [=](ModelBuilder<Cpu>& build) { return smooth_model(build, local); };
  };
  const auto smooth = outcome({.describe = describe(false)});
  check_found(smooth, {.layout = tensor, .describe = describe(false)}, false, false, no_value);
  check_found(smooth, {.layout = tensor, .describe = describe(true)}, true, true,
              "micro-batch 0: the input gradient of layer 7, loss; the last");
}

TEST_CASE("layout mistakes: 7. a replica divides by its own tokens") {
  check_found(serial(), {.layout = replicas, .reducer = CountsAlone::Options{}}, false, true,
              "micro-batch 0: the input gradient of layer 7, loss; the last");
}

TEST_CASE("layout mistakes: 8. a gathered weight is older than its shares") {
  const auto hold = [](Cpu& dev, ParameterStore<Cpu>& store, Replicas<Cpu>* of) {
    const auto bias = named(store, "block1.intermediate.dense.bias").front();
    for (auto& bucket : store.buckets())
      if (bucket->range().first <= bias->range.first && bias->range.last <= bucket->range().last)
        of->unshard(dev, *bucket);
    of->synchronize(dev);
  };
  check_found(serial(), {.layout = replicas, .sharded = ZeroStage::weights, .before_weights = hold},
              true, true, "micro-batch 0: the output of layer 6, block1.feed_forward; the last");
}

TEST_CASE("layout mistakes: 9. a stage reads the other micro-batch") {
  const auto swapped = [](Mesh<Cpu>& mesh) {
    if (mesh.pipeline_index() != 1) return;
    const auto kept = std::make_shared<std::vector<Tensor<Cpu>>>();
    mesh.pipeline() = faulty(
        mesh.pipeline(), {.recv = [=](Comm<Cpu>& inner, Cpu& dev, View<Cpu> message, int from) {
          if (kept->empty()) {
            kept->emplace_back(dev, message.dtype(), message.shape());
            inner.recv(dev, kept->back().mut(), from);
          } else if (kept->size() == 1) {
            dev.copy(message.bytes(), kept->back().view().bytes(), message.size_bytes());
            kept->emplace_back();
            return;
          }
          inner.recv(dev, message, from);
        }});
  };
  check_found(serial(), {.layout = stages, .on_mesh = swapped}, true, true,
              "micro-batch 0: the output of layer 4, block1.attention; the last");
}

TEST_CASE("layout mistakes: 10. two heads have each other's weights") {
  const auto weights = [](Cpu& dev, ParameterStore<Cpu>& store, Mesh<Cpu>& mesh) {
    if (mesh.tensor_index() != 1) return;
    for (const char* const of : {"query", "key", "value"})
      for (const char* const kind : {"weight", "bias"}) {
        const auto heads = named(store, concat("block1.attention.self.", of, ".", kind));
        REQUIRE(heads.size() == 4);
        const auto one = clone<Cpu>(dev, heads[0]->value);
        dev.copy(heads[0]->value.bytes(), heads[1]->value.bytes(), one.size_bytes());
        dev.copy(heads[1]->value.bytes(), one.view().bytes(), one.size_bytes());
      }
  };
  check_found(serial(), {.layout = tensor, .weights = weights}, true, true,
              "micro-batch 0: the output of layer 4, block1.attention; the last");
}

TEST_CASE(
    "layout mistakes: what one tensor rank alone has wrong is found in both orders of files") {
  auto found = outcome({.layout = tensor});
  const std::string whole = R"("name":"block1.attention","value":"output","tensor_rank":1)";
  const auto at = found.values.find("\"fingerprint\":\"", found.values.find(whole)) + 15;
  REQUIRE(has(found.values, whole));
  found.values.replace(at, 4, "????");
  const auto where =
      "step 1, tensor rank 1, micro-batch 0: the output of layer 4, block1.attention; ";
  for (const auto& text : {comparison(serial(), found), comparison(found, serial())})
    CHECK_MESSAGE(has(text, where), text);
}
