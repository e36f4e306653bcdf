// Checkpoints on the Cpu; and damaged and unfitting files, which are refused in a sentence that names them.
#include <tests/train/checkpoint.hpp>

#include <fstream>

using namespace tests;

namespace {

RunResult run(const Layout& layout, const RunSettings& settings, const std::string& load,
              const std::string& save, int last, const EverythingOptions& options = {}) {
  return CheckpointCases<Cpu>(options, settings).run(layout, settings, load, save, last);
}

std::string refusal(const std::string& load, const EverythingOptions& options = {}) {
  return message_of([&] { (void)run({}, {}, load, "", 1, options); });
}

}  // namespace

TEST_CASE("checkpoint: saved on 2x2x2 ranks, goes on serially and on 1x4x2 as one run") {
  CheckpointCases<Cpu>({}, {}).other_layouts({{.data = 2, .tensor = 2, .pipeline = 2}},
                                             {Layout{}, Layout{{.tensor = 4, .pipeline = 2}}}, 6);
}

TEST_CASE("checkpoint: on one rank the same bits, also with bf16 weights and their masters") {
  CheckpointCases<Cpu>({}, {}).same_bits(4);
}

TEST_CASE("checkpoint: files that do not fit the model are refused by name") {
  const Folder directory;
  run({}, {}, "", directory.path, 1);
  CHECK(has(refusal(directory.path + "/nothing"), "cannot open"));
  CHECK(has(refusal(directory.path, {.vocabulary = 32}), "another shape"));
  // Weights alone begin at step 0.
  CHECK(run({}, {}, directory.path + "/model.safetensors", "", 1).losses.size() == 1);
  std::filesystem::resize_file(directory.path + "/model.safetensors", 1000);
  CHECK(has(refusal(directory.path), "model.safetensors is"));
}

TEST_CASE("checkpoint: files of different steps are refused") {
  const Folder directory;
  const Folder older;
  run({}, {}, "", older.path, 1);
  run({}, {}, "", directory.path, 2);
  for (const auto* name : {"/model.safetensors", "/optimizer.safetensors"}) {
    const auto kept = directory.path + name;
    std::filesystem::rename(kept, kept + ".kept");
    std::filesystem::copy_file(older.path + name, kept);
    CHECK(has(refusal(directory.path), concat(name, " is of step 1 and ")));
    std::filesystem::rename(kept + ".kept", kept);
  }
  CHECK(run({}, {}, directory.path, "", 3).losses.size() == 1);
}

TEST_CASE("checkpoint: senseless numbers and types are named with their file") {
  const Folder directory;
  run({}, {}, "", directory.path, 1);
  const auto state = directory.path + "/state.json";
  for (const auto* steps : {"-4", "1e300", "\"one\"", "18446744073709551615"}) {
    std::ofstream(state) << "{\"steps\": " << steps
                         << ", \"updates\": 1, \"loss_scale\": 1, \"good_steps\": 0}";
    CHECK(has(refusal(directory.path), "state.json is damaged"));
  }
  SafeTensorsWriter writer;
  writer.add("words.weight", DType::i32, {1}, std::vector<std::byte>(4));
  writer.write(directory.path + "/integers.safetensors");
  CHECK(has(refusal(directory.path + "/integers.safetensors"), "integers.safetensors"));
}

TEST_CASE(
    "checkpoint: a directory that nobody may write to is known before training, with the reason") {
  on_each_rank(
      Layout{}, RunSettings{}, [](ModelBuilder<Cpu>& build) { return everything(build, {}); },
      [](Cpu& dev) { return everything_batch(dev, 0, 0); },
      [](Cpu&, Mesh<Cpu>& mesh, auto& pipeline, auto& trainer) {
        Checkpoint<Cpu> checkpoint(mesh, pipeline.store(), trainer.optimizer());
        errno = EDOM;
        // There not even root makes files; in a container it may be mounted for reading only.
        const auto said = message_of([&] { checkpoint.prepare("/proc/sys"); });
        CAPTURE(said);
        CHECK((said == concat("cannot write to /proc/sys: ", std::strerror(EACCES)) ||
               said == concat("cannot write to /proc/sys: ", std::strerror(EROFS))));
      });
}
