// Checkpoints on the Cpu: other layouts, damaged files, checkpoints that do not fit, and the older format.
#include <dhp/train/export.hpp>
#include <tests/train/checkpoint.hpp>

#include <sys/inotify.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>

namespace {

CheckpointRun run(const Layout& layout, const RunSettings& settings, const std::string& load,
                  const std::string& save, int last, const EverythingOptions& options = {}) {
  return CheckpointCases<Cpu>(options, settings).run(layout, settings, load, save, last);
}

std::string refusal(const std::string& load, const EverythingOptions& options = {},
                    const RunSettings& settings = {}) {
  return message_of([&] { (void)run({}, settings, load, "", 9, options); });
}

void says(const std::string& text, const std::string& part) {
  CAPTURE(text);
  CHECK(has(text, part));
}

std::string step(const Folder& directory, int number) {
  return directory.path + "/" + CheckpointFolder::name_of(number);
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path().string());
  return files;
}

void flip_byte(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 0x40));
}

}  // namespace

TEST_CASE("checkpoint: saved on 2x2x2 ranks, a run continues serially and on 1x4x2 ranks") {
  CheckpointCases<Cpu>({}, {}).other_layouts({{.data = 2, .tensor = 2, .pipeline = 2}},
                                             {Layout{}, Layout{{.tensor = 4, .pipeline = 2}}}, 6);
  const Layout v{{.data = 2, .pipeline = 2}, ZeroBubbleV{}, 2};
  CheckpointCases<Cpu>({}, {}).other_layouts(v, {Layout{}, Layout{{.tensor = 2, .pipeline = 4}}},
                                             6);
}

TEST_CASE("checkpoint: saved serially, a run continues on 4x1x2, 8x1x1 and 1x2x4 ranks") {
  CheckpointCases<Cpu>({}, {}).other_layouts(
      Layout{},
      {Layout{{.data = 4, .pipeline = 2}}, Layout{{.data = 8}},
       Layout{{.tensor = 2, .pipeline = 4}}, Layout{{.pipeline = 3}, DualPipeV{}, 2}},
      4);
}

TEST_CASE("checkpoint: on one rank a run continues with the same bits, also with bf16 weights") {
  CheckpointCases<Cpu>({}, {}).same_bits(4);
}

TEST_CASE("checkpoint: a save during later steps has the state of its own step") {
  CheckpointCases<Cpu>({}, {}).beside_training({{.data = 2}}, false);
}

TEST_CASE("checkpoint: a save that fails on a rank fails on all, and the next one may succeed") {
  const Folder directory;
  const auto path = directory.path + "/run", blocked = path + "/latest.part";
  std::ofstream(directory.path + "/file") << "no directory";
  rlimit unlimited{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  const auto before = std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit returns an error
  std::mutex mutex;
  std::vector<std::string> failures;
  const EverythingOptions model{};
  on_each_rank<Cpu>(
      {{.data = 2}}, {}, [&](ModelBuilder<Cpu>& build) { return everything(build, model); },
      [&](Cpu& dev) { return everything_batch(dev, 0, 0, model.vocabulary); },
      [&](Cpu& dev, Mesh<Cpu>& mesh, auto& pipeline, auto& trainer) {
        Checkpoint<Cpu> checkpoint(mesh, pipeline.store(), trainer.optimizer(), trainer.replicas());
        BackgroundSaver<Cpu> saver(checkpoint, false);
        const auto on_first = [&](auto action) {
          mesh.world().barrier();
          if (checkpoint.rank() == 0) action();
          mesh.world().barrier();
        };
        const auto save_to = [&](const std::string& to) {
          try {
            saver.start(dev, to, trainer.state());
            saver.wait(dev);
          } catch (const SaveFailed& error) {
            const std::lock_guard lock(mutex);
            failures.push_back(error.sentence());
          }
        };
        save_to(directory.path + "/file/run");
        on_first([&] {
          const rlimit one_byte{1, unlimited.rlim_max};
          (void)::setrlimit(RLIMIT_FSIZE, &one_byte);
        });
        save_to(path);
        on_first([&] {
          (void)::setrlimit(RLIMIT_FSIZE, &unlimited);
          std::filesystem::create_directories(blocked);
        });
        save_to(path);
        on_first([&] { std::filesystem::remove(blocked); });
        save_to(path);
      });
  (void)std::signal(SIGXFSZ, before);
  REQUIRE(failures.size() == 6);
  says(failures[0], "rank 0: cannot make the directory");
  says(failures[2], "shard-0000");
  says(failures[4], "latest.part");
  for (const int one : {0, 2, 4}) CHECK(failures[one] == failures[one + 1]);
  CHECK(CheckpointFolder(path).latest() == CheckpointFolder::name_of(0));
  CHECK(files_of(path).size() == 2);
  says(refusal(path, {.vocabulary = 32}), "another shape");  // the checkpoint is complete
}

TEST_CASE("checkpoint: finish() waits for the copy before the state is written again") {
  Cpu dev;
  auto values = Tensor<Cpu>::from_host(dev, {4}, std::vector<float>{1, 2, 3, 4});
  const Piece piece{.name = "w", .shape = {4}, .range = {0, 4}};
  dhp::detail::StateCopy<Cpu> copy(false);
  copy.start(dev, {{piece, values.mut()}});
  std::vector<HeldPiece<Cpu>> copied;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    copied = copy.pieces();
  });
  copy.finish(dev);
  fill(dev, values.mut(), 0);
  writer.join();
  CHECK(copied[0].data.data<float>()[3] == 4);
}

TEST_CASE("checkpoint: with exact sums other D and P continue with the same bits") {
  const Folder directory;
  const RunSettings exact{.deterministic = true, .optimizer = LambOptions{}, .micro_batches = 4};
  const auto straight = run({}, exact, "", "", 4);
  (void)run({{.data = 2, .pipeline = 2}}, exact, "", directory.path, 2);
  for (const auto& layout : {Layout{}, Layout{{.data = 4}}, Layout{{.data = 2, .pipeline = 4}}})
    CHECK(run(layout, exact, directory.path, "", 4).values == straight.values);
}

TEST_CASE("checkpoint: replicas save their ZeRO shares, and any layout reads them") {
  const Folder directory;
  RunSettings settings{.deterministic = true, .optimizer = AdamWOptions{}, .micro_batches = 4};
  const auto zero = [&](int stage) {
    settings.sharding = {static_cast<ZeroStage>(stage), 16 << 10};
    return settings;
  };
  const EverythingOptions wide{.vocabulary = 1500};  // its embedding fills 1.5 pages of a share
  const auto straight = run({}, settings, "", "", 4, wide);
  for (const int saved : {1, 2, 3}) {
    const auto path = concat(directory.path, "/", saved);
    (void)run({{.data = 2, .pipeline = saved == 2 ? 2 : 1}}, zero(saved), "", path, 2, wide);
    CHECK(run({}, settings, path, "", 4, wide).values == straight.values);
    CHECK(run({{.data = 4}}, zero(4 - saved), path, "", 4, wide).values == straight.values);
  }
  // With an odd vocabulary, ranks of the tensor axis may have their shares cut at different places.
  const EverythingOptions odd{.vocabulary = 1501};
  const auto split = run({}, settings, "", "", 4, odd);
  const auto path = directory.path + "/split";
  (void)run({{.data = 2, .tensor = 2}}, zero(3), "", path, 2, odd);
  CHECK(difference(split.values, run({}, settings, path, "", 4, odd).values).worst < 1e-9);
}

TEST_CASE("checkpoint: ranks with the same elements write each of them once, in equal shares") {
  const Folder directory;
  (void)run({{.data = 4, .tensor = 2}}, {}, "", directory.path, 1);
  SavedPieces saved(step(directory, 1));  // refuses an index that does not hold each element once
  std::vector<std::uintmax_t> sizes;
  for (const auto& path : files_of(step(directory, 1)))
    if (path.ends_with(".safetensors")) {
      sizes.push_back(std::filesystem::file_size(path));
      const SafeTensors shard(path);
      CHECK(!shard.tensors().empty());
    }
  REQUIRE(sizes.size() == 8);
  CHECK(*std::max_element(sizes.begin(), sizes.end()) <
        4 * *std::min_element(sizes.begin(), sizes.end()));
}

TEST_CASE("checkpoint: a mismatch is refused by name, without trying an older checkpoint") {
  const Folder directory;
  (void)run({}, {}, "", directory.path, 1);
  says(refusal(directory.path + "/nothing"), "has no checkpoint to go on from");
  says(refusal(directory.path, {.vocabulary = 32}), "another shape");
  says(refusal(directory.path, {}, {.optimizer = LambOptions{}}),
       "was saved with the optimizer sgd, this run has lamb");
}

TEST_CASE("checkpoint: a flipped byte is found, and the newest intact one is taken with a remark") {
  const Folder directory;
  const auto straight = run({}, {}, "", directory.path, 1);
  (void)run({{.tensor = 2}}, {}, directory.path, directory.path, 2);
  const auto files = files_of(step(directory, 2));
  REQUIRE(files.size() == 3);
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const auto& path = files[random() % files.size()];
    const auto at = random() % std::filesystem::file_size(path);
    INFO("path ", path, " at ", at);
    flip_byte(path, at);
    const auto after = run({}, {}, directory.path, "", 1);
    CHECK(after.losses.empty());  // loaded at step 1, which is the last
    CHECK(after.values == straight.values);
    REQUIRE(after.remarks.size() == 1);
    says(after.remarks[0], "is damaged");
    says(after.remarks[0], step(directory, 2));
    says(refusal(step(directory, 2)), "nothing in it is whole");
    flip_byte(path, at);
  }
  CHECK(run({}, {}, directory.path, "", 2).remarks.empty());
}

TEST_CASE("checkpoint: the newest and the best by a measure are kept, damaged ones are not") {
  const Folder directory;
  Cpu dev;
  const auto save = [&](int number, const char* measure, double value) {
    dhp::detail::CheckpointSave result(directory.path, number, 0, 1);
    result.begin();
    result.write(dev, {});
    RunRecord record{.keep = 1, .keep_best = measure};
    if (value != 0) record.measures = {{"other", number}, {measure, value}};
    result.commit(record);
    return CheckpointFolder(directory.path).names();
  };
  const auto name = [](int number) { return CheckpointFolder::name_of(number); };
  using Names = std::vector<std::string>;
  const auto copy = step(directory, 1) + "-copy", archive = step(directory, 1) + ".tar.gz";
  std::filesystem::create_directory(copy);
  replace_file(archive, "");
  CHECK(save(1, "masked_loss", 3) == Names{name(1)});
  CHECK(save(2, "masked_loss", 2) == Names{name(2)});
  CHECK(save(3, "masked_loss", 4) == Names{name(3), name(2)});
  CHECK(save(4, "masked_loss", 0) == Names{name(4), name(2)});  // not evaluated
  CHECK(save(5, "masked_loss", 2) == Names{name(5)});
  CHECK(save(6, "masked_loss", std::nan("")) == Names{name(6), name(5)});
  flip_byte(step(directory, 5) + "/index.json", 100);
  CHECK(save(7, "top1", 0.5) == Names{name(7)});
  CHECK(save(8, "top1", 0.4) == Names{name(8), name(7)});
  CHECK(std::filesystem::exists(copy));
  CHECK(std::filesystem::exists(archive));

  dhp::detail::CheckpointSave last(directory.path, 9, 0, 1);
  last.begin();
  last.write(dev, {});
  for (const char* own : {"index.json", "shard-00000.safetensors", "../latest"})
    says(message_of([&] { last.commit({.files = {{own, ""}}}); }), "choose another one");
}

TEST_CASE("checkpoint: a step that is saved again is there at every moment") {
  const Folder directory;
  const auto* const path = directory.path.c_str();
  if (::renameat2(AT_FDCWD, path, AT_FDCWD, path, RENAME_EXCHANGE) != 0) return;  // not possible
  const CheckpointFolder folder(directory.path);
  folder.begin(1);
  folder.commit(1);
  const int moves = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(::inotify_add_watch(moves, path, IN_MOVED_TO) >= 0);
  folder.begin(1);
  folder.commit(1);
  std::string names(4096, ' ');
  REQUIRE(::read(moves, names.data(), names.size()) > 0);
  ::close(moves);
  CHECK(has(names, CheckpointFolder::name_of(1)));
  CHECK_FALSE(has(names, ".old"));
  CHECK(folder.unfinished().empty());
}

TEST_CASE("checkpoint: truncated, missing and unrenamed files are not a checkpoint") {
  const Folder directory;
  (void)run({}, {}, "", directory.path, 1);
  for (const auto& path : files_of(step(directory, 1))) {
    const auto kept = path + ".kept";
    std::filesystem::copy_file(path, kept);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    says(refusal(directory.path), "nothing in it is whole");
    std::filesystem::remove(path);
    says(refusal(directory.path), "cannot open");
    std::filesystem::rename(kept, path);
  }
  std::filesystem::rename(step(directory, 1), step(directory, 2) + ".part");
  says(refusal(directory.path), "has no checkpoint to go on from");
  // The newest of two checkpoints is found beside two unfinished saves.
  std::filesystem::rename(step(directory, 2) + ".part", step(directory, 1));
  const auto two = run({}, {}, directory.path, directory.path, 2);
  for (const int number : {3, 4})
    std::filesystem::create_directory(step(directory, number) + ".part");
  CHECK(run({}, {}, directory.path, "", 2).values == two.values);
}

TEST_CASE("checkpoint: conversions between 16 and 32 bits use the master weights") {
  const Folder narrow;
  const RunSettings f32{.compute = DType::f32};
  const RunSettings bf16{.compute = DType::bf16};
  const Folder wide;
  const auto values = run({}, f32, "", wide.path, 2).values;
  (void)run({}, bf16, wide.path, narrow.path, 2);  // takes no step, only converts
  const auto back = run({}, f32, narrow.path, "", 2);
  CHECK(back.values == values);
  CHECK(back.remarks.empty());
}

TEST_CASE("checkpoint: training starts from exported weights, a file of whole tensors") {
  const Folder directory;
  const auto saved = run({{.tensor = 2, .pipeline = 2}}, {}, "", directory.path, 2);
  const auto file = directory.path + "/weights.safetensors";
  export_weights(step(directory, 2), file);
  const auto loaded = run({}, {}, file, "", 0);
  CHECK(loaded.values == saved.values);
  const SafeTensors weights(file);
  for (const auto& [name, tensor] : weights.tensors()) CHECK(!name.starts_with("optimizer/"));
}

TEST_CASE("checkpoint: a weight file may have other names, fewer weights or lack the head") {
  const Folder directory;
  const auto saved = run({{.tensor = 2}}, {}, "", directory.path, 2);
  const auto fresh = run({}, {}, "", "", 0);
  const auto all = directory.path + "/all.safetensors", some = directory.path + "/some.safetensors";
  export_weights(step(directory, 2), all);
  const SafeTensors whole(all);
  SafeTensorsWriter fewer;
  const auto head = saved.values.rbegin()->first;
  for (const auto& [name, tensor] : whole.tensors())
    if (name != head) fewer.add(name, tensor.dtype, tensor.shape, whole.read(tensor));
  fewer.add("of.nobody", DType::f32, {1}, std::vector<std::byte>(4));
  fewer.add("embeddings.position_ids", DType::i64, {1}, std::vector<std::byte>(8));
  fewer.add("of.u32", DType::f32, {1}, std::vector<std::byte>(4));
  fewer.write(some);
  auto text = text_of(some);
  text[text.find('F', text.find("of.u32"))] = 'U';
  replace_file(some, text);
  const auto load = [](const std::string& from, const WeightLoading& how) {
    return CheckpointCases<Cpu>({}, {}).run({{.pipeline = 2}}, {}, from, "", 0, -1, how);
  };
  auto expected = saved.values;
  expected[head] = fresh.values.at(head);
  const auto loaded = load(some, {});
  CHECK(loaded.values == expected);
  REQUIRE(loaded.remarks.size() == 1);
  says(loaded.remarks[0], concat("new is ", head, "; left over are of.nobody, of.u32"));
  CHECK(load(all, {.new_head = head}).values == expected);
  says(message_of([&] { (void)load(some, {.all = true}); }),
       concat("lacks weights of this model: ", head));
  SafeTensorsWriter other;
  other.add("of.nobody", DType::f32, {1}, std::vector<std::byte>(4));
  other.write(some);
  says(message_of([&] { (void)load(some, {}); }),
       "has none of this model's weights: it has of.nobody");
  SafeTensorsWriter adapter;
  const auto& first = *whole.tensors().begin();
  adapter.add("base_model.model." + first.first, first.second.dtype, first.second.shape,
              whole.read(first.second));
  adapter.write(directory.path + "/adapter_model.safetensors");
  CHECK(load(all, {.adapter = directory.path}).values == saved.values);
  says(message_of([&] { (void)load(all, {.adapter_head = "", .adapter = directory.path}); }),
       concat("replaces ", first.first, ", which --export-adapter does not write"));
  std::ofstream(directory.path + "/model.pth") << "PK";
  says(refusal(directory.path + "/model.pth"), "becomes one by: python3");
}

TEST_CASE("checkpoint: the older format of two files and a state is read") {
  const Folder directory;
  const auto straight = run({}, {}, "", "", 4);
  (void)run({}, {}, "", directory.path, 2);
  const auto old = directory.path + "/old";
  std::filesystem::create_directory(old);
  export_weights(step(directory, 2), old + "/model.safetensors");
  SavedPieces saved(step(directory, 2));
  SafeTensorsWriter state;
  for (const auto& [name, pieces] : saved.index().tensors) {
    const auto& piece = pieces.front().piece;
    if (name.starts_with("optimizer/momentum_buffer/"))
      state.add("momentum_buffer." + name.substr(26), piece.dtype,
                detail::file_shape(piece.shape, piece.file_order),
                dhp::detail::whole_tensor(saved, piece));
  }
  state.write(old + "/optimizer.safetensors");
  std::ofstream(old + "/state.json") << R"({"format": 1, "steps": 2, "updates": 2, "loss_scale": 1,
    "good_steps": 0, "settings": {"seed": 0}})";
  CHECK(run({}, {}, old, "", 4).values == straight.values);
  for (const auto* steps : {"-4", "1e300", "\"one\"", "18446744073709551615"}) {
    std::ofstream(old + "/state.json")
        << "{\"steps\": " << steps << ", \"updates\": 1, \"loss_scale\": 1, \"good_steps\": 0}";
    says(refusal(old), "state.json is damaged");
  }
}

TEST_CASE("checkpoint: an unwritable folder is reported before training, with the reason") {
  errno = EDOM;
  // Not even root can make files in /proc/sys. In a container it may be mounted read-only.
  const auto message = message_of([] { CheckpointFolder("/proc/sys").make(); });
  CAPTURE(message);
  CHECK((message == concat("cannot write to /proc/sys: ", std::strerror(EACCES)) ||
         message == concat("cannot write to /proc/sys: ", std::strerror(EROFS))));
}
