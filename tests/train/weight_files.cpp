// The weights of a published model in one file or several, and the weights alone of a checkpoint.
#include <dhp/train/export.hpp>
#include <tests/train/checkpoint.hpp>

namespace {

[[nodiscard]] CheckpointRun run(const Layout& layout, const std::string& load,
                                const std::string& save, const WeightLoading& how = {},
                                const OptimizerChoice& optimizer = SgdOptions{.momentum = 0.9}) {
  RunSettings settings;
  settings.optimizer = optimizer;
  const int last = save.empty() ? 0 : 1;
  return CheckpointCases<Cpu>({}, {}).run(layout, settings, load, save, last, -1, how);
}
/// Writes the tensors to two files, in turn, and an index of them. The first gets another name, which the index notes
/// as save_torch_model() of Python's huggingface_hub does if two tensors share memory.
void part(const SafeTensors& whole, const std::string& folder) {
  SafeTensorsWriter shards[2];
  nlohmann::json index{{"metadata", {{"total_size", 1}}}};
  int number = 0;
  for (const auto& [name, tensor] : whole.tensors()) {
    const auto stored = number == 0 ? "shared" : name;
    if (number == 0) index["metadata"][name] = stored;
    const int shard = number++ % 2;
    shards[shard].add(stored, tensor.dtype, tensor.shape, whole.read(tensor));
    index["weight_map"][stored] = concat("model-", shard, ".safetensors");
  }
  for (int shard = 0; shard < 2; ++shard)
    shards[shard].write(concat(folder, "/model-", shard, ".safetensors"));
  std::ofstream(folder + "/model.safetensors.index.json") << index;
}
void says(const std::string& path, const char* words) {
  CHECK_THROWS_WITH_AS(WeightFiles{path}, Contains(words), Error);
}

}  // namespace

TEST_CASE("weight files: weights come from one file, several with an index, or a checkpoint") {
  const Folder saved, one, several;
  const auto expected = run({{.tensor = 2}}, "", saved.path, {}, AdamWOptions{}).values;
  const auto checkpoint = saved / CheckpointFolder::name_of(1);
  export_weights(checkpoint, one / "model.safetensors");
  std::filesystem::remove(saved / "latest");       // a kill during the first save leaves none
  export_weights(saved.path, several / "newest");  // newest checkpoint of the run
  CHECK(text_of(several / "newest") == text_of(one / "model.safetensors"));
  part(SafeTensors(one / "model.safetensors"), several.path);
  std::filesystem::copy_file(one / "model.safetensors", saved / "model.safetensors");
  CHECK_FALSE(WeightFiles::are_at(saved.path));
  CHECK_FALSE(WeightFiles::are_at(checkpoint));
  says(checkpoint + "/shard-00000.safetensors", "is a part of the checkpoint");
  for (const auto& folder : {one.path, several.path}) {
    CHECK(WeightFiles::are_at(folder));
    CHECK(run({}, folder, "", {.only = true}).remarks.empty());
    for (const Layout& layout : {Layout{}, Layout{{.tensor = 2, .pipeline = 3}}})
      CHECK(run(layout, folder, "", {.all = true}).values == expected);
  }
  auto other = text_of(one / "model.safetensors");
  other[other.find("\"dtype\":\"F") + 9] = 'U';
  replace_file(one / "model.safetensors", other);
  CHECK_THROWS_WITH_AS((void)run({}, one.path, ""), Contains(", which dhp does not compute in"),
                       Error);
  // With .only, a run with another optimizer loads the weights, and ignores the saved optimizer's state.
  const auto alone = run({{.data = 2}}, saved.path, "", {.only = true});
  CHECK(alone.values == expected);
  CHECK(alone.remarks.empty());
  CHECK_THROWS_WITH_AS((void)run({}, saved.path, ""), Contains("with the optimizer adamw"), Error);
}

TEST_CASE("weight files: a damaged index, or one with missing files, is refused") {
  const Folder folder;
  const auto index = folder / WeightFiles::index_name;
  SafeTensorsWriter writer;
  writer.add("a", DType::f32, {1}, std::vector<std::byte>(4));
  writer.write(folder / "x.safetensors");
  const auto with = [&](const std::string& text, const char* words) {
    std::ofstream(index) << text;
    says(folder.path, words);
  };
  std::ofstream(index)
      << R"({"metadata": {"total_size": 4.0e0, "more": [null, true, -1, "\"\u00e9"]},
    "weight_map": {"\u0061": "x.safetensors"}, "last": null})";
  CHECK(WeightFiles(folder.path).tensors().contains("a"));
  with("{", "no JSON object with a \"weight_map\"");
  with(R"({"weight_map": {"a": "x.safetensors", "a": "x.safetensors"}})", "has \"a\" twice");
  with(R"({"weight_map": {"a": "../x.safetensors"}})", "tensor a is not in a .safetensors file");
  with(R"({"weight_map": {"a": "x.bin"}})", "tensor a is not in a .safetensors file");
  with(R"({"weight_map": {"a": "y.safetensors"}})", "cannot open");
  with(R"({"weight_map": {"b": "x.safetensors"}})", "says that tensor b is in");
  SafeTensorsWriter again;
  again.add("a", DType::f32, {1}, std::vector<std::byte>(4));
  again.write(folder / "z.safetensors");
  with(R"({"weight_map": {"a": "x.safetensors", "c": "z.safetensors"}})", "a tensor has one place");
  again.write(folder / "model.safetensors");  // takes precedence, like in transformers
  CHECK(WeightFiles(folder.path).tensors().at("a")->path() == folder / "model.safetensors");
}

TEST_CASE("weight files: PyTorch's own file is refused with the command that converts it") {
  const Folder folder;
  std::ofstream(folder / "pytorch_model.bin") << "PK";
  CHECK_THROWS_WITH_AS((void)run({}, folder.path, ""), Contains("becomes one by: python3"), Error);
}
