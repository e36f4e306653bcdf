// A run that is saved and loaded under another layout goes on as if nothing had happened; damaged and
// unfitting files are refused in a sentence that names them.
#include <dhp/train/checkpoint.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

using namespace dhp;
using namespace tests;

namespace {

/// A directory that goes when the test does.
struct Directory {
  std::string path;
  explicit Directory(const std::string& name)
      : path((std::filesystem::temp_directory_path() / ("dhp_" + name + std::to_string(::getpid())))
                 .string()) {
    std::filesystem::remove_all(path);
  }
  ~Directory() { std::filesystem::remove_all(path); }
};

/// Trains from what is saved at `load` (if anything) up to step `last`, saves to `save` (if anything).
RunResult run(const Layout& layout, RunSettings settings, const std::string& load,
              const std::string& save, int last, EverythingOptions options = {}) {
  RunResult result;
  std::mutex mutex;
  on_each_rank(
      layout, settings, [&](Build<Cpu>& build) { return everything(build, options); },
      [](Cpu& dev) { return everything_batch(dev, 0, 0); },
      [&](Cpu& dev, Mesh<Cpu>& mesh, auto& pipeline, auto& trainer) {
        Checkpoint<Cpu> checkpoint(mesh, pipeline.store(), trainer.optimizer());
        if (!load.empty()) trainer.resume(checkpoint.load(dev, load));
        while (trainer.steps_done() < last) {
          const auto batches = dealt(mesh, settings.micro_batches, [&](std::int64_t k) {
            return everything_batch(dev, static_cast<int>(trainer.steps_done()), k);
          });
          const auto report = trainer.step(batches);
          if (mesh.world().rank() == 0) result.losses.push_back(report.loss);
        }
        if (!save.empty()) checkpoint.save(dev, save, trainer.progress());
        const std::lock_guard lock(mutex);
        for (const auto& parameter : pipeline.store().parameters())
          if (mesh.data_index() == 0)
            place_part(parameter->spec, host_values(dev, parameter->value),
                       result.values[parameter->spec.name]);
      });
  return result;
}

std::string refusal(const std::string& load, EverythingOptions options = {}) {
  try {
    run({}, {}, load, "", 1, options);
  } catch (const Error& error) {
    return error.sentence();
  }
  return "no error";
}

}  // namespace

TEST_CASE("checkpoint: saved on 2x2x2 ranks, goes on serially and on 1x4x2 as one run") {
  const Directory directory("layouts");
  const auto straight = run({}, {}, "", "", 6);
  const Layout eight{{.data = 2, .tensor = 2, .pipeline = 2}};
  run(eight, {}, "", directory.path, 3);
  for (const auto& layout : {Layout{}, Layout{{.tensor = 4, .pipeline = 2}}}) {
    CAPTURE(to_text(layout));
    const auto rest = run(layout, {}, directory.path, "", 6);
    REQUIRE(rest.losses.size() == 3);
    CHECK(difference(straight.values, rest.values).worst < 1e-9);
    CHECK(std::abs(rest.losses.back() - straight.losses.back()) < 1e-9);
  }
}

TEST_CASE("checkpoint: on one rank the same bits, also with bf16 weights and their masters") {
  for (const auto compute : {DType::f64, DType::bf16}) {
    const Directory directory("bits");
    const RunSettings settings{.compute = compute};
    const auto straight = run({}, settings, "", "", 4);
    run({}, settings, "", directory.path, 2);
    const auto rest = run({}, settings, directory.path, "", 4);
    CHECK(rest.values == straight.values);
  }
}

TEST_CASE("checkpoint: what does not fit is refused by name") {
  const Directory directory("refused");
  run({}, {}, "", directory.path, 1);
  CHECK(refusal(directory.path + "/nothing").find("cannot open") != std::string::npos);
  CHECK(refusal(directory.path, {.vocabulary = 32}).find("another shape") != std::string::npos);
  // Weights alone begin at step 0.
  CHECK(run({}, {}, directory.path + "/model.safetensors", "", 1).losses.size() == 1);
  std::filesystem::resize_file(directory.path + "/model.safetensors", 1000);
  CHECK(refusal(directory.path).find("model.safetensors is") != std::string::npos);
}

TEST_CASE("checkpoint: files of different steps are not taken for one run") {
  const Directory directory("torn");
  const Directory older("older");
  run({}, {}, "", older.path, 1);
  run({}, {}, "", directory.path, 2);
  for (const auto* name : {"/model.safetensors", "/optimizer.safetensors"}) {
    const auto kept = directory.path + name;
    std::filesystem::rename(kept, kept + ".kept");
    std::filesystem::copy_file(older.path + name, kept);
    CHECK(refusal(directory.path).find(concat(name, " is of step 1 and ")) != std::string::npos);
    std::filesystem::rename(kept + ".kept", kept);
  }
  CHECK(run({}, {}, directory.path, "", 3).losses.size() == 1);
}

TEST_CASE("checkpoint: numbers and types that make no sense are named with their file") {
  const Directory directory("damaged");
  run({}, {}, "", directory.path, 1);
  const auto state = directory.path + "/state.json";
  for (const auto* steps : {"-4", "1e300", "\"one\"", "18446744073709551615"}) {
    std::ofstream(state) << "{\"steps\": " << steps
                         << ", \"updates\": 1, \"loss_scale\": 1, \"good_steps\": 0}";
    CHECK(refusal(directory.path).find("state.json is damaged") != std::string::npos);
  }
  SafeTensorsWriter writer;
  writer.add("words.weight", DType::i32, {1}, std::vector<std::byte>(4));
  writer.write(directory.path + "/integers.safetensors");
  CHECK(refusal(directory.path + "/integers.safetensors").find("integers.safetensors") !=
        std::string::npos);
}

TEST_CASE(
    "checkpoint: a directory that nobody may write to is known before training, with the reason") {
  on_each_rank(
      Layout{}, RunSettings{}, [](Build<Cpu>& build) { return everything(build, {}); },
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
