// The models' tables of placements determine what each rank's store holds.
#include <dhp/cpu.hpp>
#include <examples/bert/encoder.hpp>
#include <examples/resnet50/model.hpp>
#include <tests/support/device_ranks.hpp>

namespace {

/// Returns what each of two ranks holds: "placement dimension parts" by parameter, read from the store's memory.
template <class Describe>
std::map<std::string, std::string> held(const Describe& describe) {
  std::map<std::string, std::string> found[2];
  on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
    ModelBuilder<Cpu> build(world);
    const Model<Cpu> model = describe(build);
    build.check_described();
    const ParameterStore<Cpu> store(dev, model.parameters(), {});
    for (const auto& parameter : store.parameters()) {
      const auto& spec = parameter->spec;
      auto text = to_text(spec.placement);
      for (int dim = 0; dim < spec.shape.rank(); ++dim)
        if (parameter->value.shape()[dim] != spec.shape[dim])
          text +=
              concat(" ", dim, ": ", spec.part.first, "-", spec.part.last, " of ", spec.shape[dim]);
      found[world.rank()][spec.name] = text;
      check(parameter->value.shape() == spec.local_shape(), spec.name);
    }
  });
  for (auto& [name, text] : found[0]) text += text == found[1][name] ? "" : ", " + found[1][name];
  return found[0];
}

examples::BertConfig bert_config() {
  return {
      .layers = 1, .hidden = 8, .heads = 2, .vocabulary = 11, .positions = 4, .sequence_length = 4};
}

}  // namespace

TEST_CASE("placements: BERT's table matches what ranks hold") {
  const auto found =
      held([](ModelBuilder<Cpu>& build) { return examples::bert(build, bert_config()); });
  std::map<std::string, std::string> expected;
  const auto expect = [&](const std::string& name, const std::string& kind, int dim,
                          std::int64_t size) {
    const auto half = (size + 1) / 2;
    const auto of = [&](std::int64_t first, std::int64_t last) {
      return concat(kind, " ", dim, ": ", first, "-", last, " of ", size);
    };
    expected[name] = of(0, half) + ", " + of(half, size);
  };
  const std::string block = "bert.encoder.layer.0.";
  expect("bert.embeddings.word_embeddings.weight", "words", 0, 11);
  expect("cls.predictions.bias", "words", 0, 11);
  for (const std::string which : {"query", "key", "value"})
    for (const std::string of : {".weight", ".bias"})
      expect(block + "attention.self." + which + of, "heads", 0, 8);
  expect(block + "attention.output.dense.weight", "rows", 1, 8);
  expect(block + "intermediate.dense.weight", "columns", 0, 32);
  expect(block + "intermediate.dense.bias", "columns", 0, 32);
  expect(block + "output.dense.weight", "rows", 1, 32);
  CHECK(found.size() > 2 * expected.size());
  for (const auto& [name, text] : found) {
    INFO(name);
    CHECK(text == (expected.contains(name) ? expected[name] : "replicated"));
    expected.erase(name);
  }
  CHECK(expected.empty());
}

TEST_CASE("placements: BERT's table fits each of its heads") {
  const examples::PublishedBert published{.config = bert_config(), .labels = {"no", "yes"}};
  for (const auto head : {examples::BertHead::none, examples::BertHead::classes})
    CHECK(held([&](ModelBuilder<Cpu>& build) {
            return examples::bert_with(build, published, head);
          }).at("bert.embeddings.word_embeddings.weight") ==
          "words 0: 0-6 of 11, words 0: 6-11 of 11");
}

TEST_CASE("placements: a ResNet's table matches what ranks hold") {
  const examples::ResNetConfig config{.depth = 14, .width = 4, .image_size = 32, .classes = 5};
  const auto found =
      held([&](ModelBuilder<Cpu>& build) { return examples::resnet(build, config); });
  for (const auto& [name, text] : found) {
    INFO(name);
    const auto ends = [&, &of = name](auto... parts) { return (of.ends_with(parts) || ...); };
    const bool columns = name.starts_with("fc.") || name.find(".bn1.") != name.npos ||
                         name.find(".bn2.") != name.npos || ends(".conv1.weight", ".conv2.weight");
    const bool rows = ends(".conv3.weight", ".downsample.0.weight");
    CHECK(text.starts_with(columns ? "columns 0: 0-" : rows ? "rows 3: 0-" : "replicated"));
    CHECK((text == "replicated") == !(columns || rows));
  }
  CHECK(found.at("fc.bias") == "columns 0: 0-3 of 5, columns 0: 3-5 of 5");
  CHECK(found.at("layer1.0.conv3.weight") == "rows 3: 0-2 of 4, rows 3: 2-4 of 4");
}
