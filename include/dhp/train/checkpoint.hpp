// Saved models: a directory with model.safetensors (in the axis order of weight files), optimizer.safetensors and
// state.json. Rank 0 writes whole tensors, so that they load under any other layout. Needs nlohmann/json.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/core/config.hpp>
#include <dhp/core/system_error.hpp>
#include <dhp/optim/optimizer.hpp>
#include <dhp/train/safetensors.hpp>
#include <dhp/train/trainer.hpp>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace dhp {

/// [O, K, K, I] in memory, [O, I, K, K] in files.
[[nodiscard]] inline std::vector<std::int64_t> file_shape(const ParameterSpec& spec) {
  const auto& shape = spec.shape;
  if (spec.file_order == FileOrder::out_kernel_in_as_out_in_kernel)
    return {shape[0], shape[3], shape[1], shape[2]};
  std::vector<std::int64_t> extents;
  for (int dim = 0; dim < shape.rank(); ++dim) extents.push_back(shape[dim]);
  return extents;
}

/// The index in the file of an element of the unsplit tensor.
[[nodiscard]] inline std::int64_t file_place(const ParameterSpec& spec, std::int64_t element) {
  if (spec.file_order == FileOrder::same) return element;
  const auto inputs = spec.shape[3];
  const auto window = spec.shape[1] * spec.shape[2];
  const auto input = element % inputs;
  const auto rest = element / inputs;  // out * window + position in the window
  return (rest / window * inputs + input) * window + rest % window;
}

/// Calls move(index in the file, index in this part, elements) for each run that is contiguous in both.
template <class Move>
void for_file_runs(const ParameterSpec& spec, Move move) {
  const auto count = spec.local_shape().count();
  const auto run = spec.file_order == FileOrder::same ? std::max<std::int64_t>(spec.run(), 1) : 1;
  for (std::int64_t at = 0; at < count; at += run)
    move(file_place(spec, spec.unsplit_index(at)), at, run);
}

template <class Dev>
class Checkpoint {
 public:
  /// Keeps references.
  Checkpoint(Mesh<Dev>& mesh, ParameterStore<Dev>& store, Optimizer<Dev>& optimizer)
      : mesh_(mesh), store_(store), optimizer_(optimizer) {}

  /// Makes the directory, on rank 0. Call it before training: it throws if the directory is not writable.
  void prepare(const std::string& directory) {
    if (mesh_.world().rank() != 0) return;
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    check(!error, "cannot make the directory ", directory, ": ", error.message());
    check_system(::access(directory.c_str(), W_OK) == 0, "cannot write to ", directory);
  }

  /// Collective; rank 0 writes. Old files stay until all new ones are complete. `more` may add files (on rank 0).
  void save(Dev& dev, const std::string& directory, const TrainingProgress& progress,
            const std::function<void(FileReplacement&)>& more = {}) {
    const bool writes = mesh_.world().rank() == 0;
    prepare(directory);
    const auto steps = concat(progress.steps);
    FileReplacement files;
    SafeTensorsWriter model;
    const auto names = gather(dev, model, "", nullptr);
    if (writes) {
      add_batch_counters(model, names, progress.updates);
      model.note("format", "pt");  // Hugging Face's loaders ask for it
      model.note(steps_note, steps);
      files.add(directory + "/model.safetensors", [&](OpenFile& file) { model.write(file); });
    }
    SafeTensorsWriter state;
    for (const auto& buffer : optimizer_.state())
      (void)gather(dev, state, buffer.name + ".", buffer.buffer);
    if (writes) {
      state.note(steps_note, steps);
      files.add(directory + "/optimizer.safetensors", [&](OpenFile& file) { state.write(file); });
      if (more) more(files);
      nlohmann::ordered_json json{
          {"format", 1},
          {"dhp", concat(version_major, ".", version_minor, ".", version_patch)},
          {"steps", progress.steps},
          {"updates", progress.updates},
          {"loss_scale", progress.loss_scale},
          {"good_steps", progress.good_steps}};
      for (const auto& [name, value] : progress.settings) json["settings"][name] = value;
      files.add(directory + "/state.json",
                [&](OpenFile& file) { file.write(json.dump(2) + "\n"); });
      files.commit();
    }
    mesh_.world().barrier();
  }

  /// Every rank reads its parts. `path`: a saved directory, or a .safetensors file with weights only, from which
  /// training begins at step 0. Throws if a tensor is missing or has another shape.
  TrainingProgress load(Dev& dev, const std::string& path) {
    const bool is_directory = std::filesystem::is_directory(path);
    const SafeTensors model(is_directory ? path + "/model.safetensors" : path);
    for (const auto& parameter : store_.parameters())
      read_part(dev, model, parameter->spec.name, *parameter, parameter->value);
    optimizer_.values_changed(dev);
    if (!is_directory || !std::filesystem::exists(path + "/state.json")) return {};

    const auto progress = read_progress(path + "/state.json");
    const SafeTensors state(path + "/optimizer.safetensors");
    for (const auto* file : {&model, &state})
      check(
          file->note(steps_note).empty() || file->note(steps_note) == concat(progress.steps),
          file->path(), " is of step ", file->note(steps_note), " and ", path,
          "/state.json of step ", progress.steps,
          ": saving was interrupted or files were mixed; load model.safetensors by itself to start "
          "from its weights");
    for (const auto& buffer : optimizer_.state()) {
      for (const auto& parameter : store_.parameters()) {
        if (parameter->spec.buffer) continue;
        const auto name = buffer.name + "." + parameter->spec.name;
        // A run in another precision had no masters: they were copied from the weights above.
        if (buffer.name == "master" && state.find(name) == nullptr) continue;
        read_part(dev, state, name, *parameter, view_of(*parameter, buffer.buffer));
      }
    }
    return progress;
  }

 private:
  static constexpr const char* steps_note = "steps";

  [[nodiscard]] static TrainingProgress read_progress(const std::string& path) {
    std::ifstream stream(path);
    const auto json = nlohmann::json::parse(stream, nullptr, false);
    const auto has = [&](const char* key, bool right) {
      check(right, path, " is damaged: it has no number of 0 or more \"", key, "\"");
    };
    const auto whole = [&](const char* key) {
      has(key, json.is_object() && json.contains(key) && json[key].is_number_unsigned() &&
                   json[key].template get<std::uint64_t>() < std::uint64_t{1} << 62);
      return json[key].template get<std::int64_t>();
    };
    TrainingProgress progress{.steps = whole("steps"), .updates = whole("updates")};
    has("loss_scale", json.contains("loss_scale") && json["loss_scale"].is_number() &&
                          json["loss_scale"].template get<double>() >= 0);
    progress.loss_scale = json["loss_scale"].template get<double>();
    progress.good_steps = static_cast<int>(std::min<std::int64_t>(whole("good_steps"), 1 << 30));
    if (json.contains("settings") && json["settings"].is_object())
      for (const auto& [name, value] : json["settings"].items())
        if (value.is_number_integer())
          progress.settings.emplace_back(name, value.template get<std::int64_t>());
    return progress;
  }

  /// Sent before the parts.
  struct Entry {
    ParameterSpec spec;
    DType dtype;
  };

  /// A parameter's values, or its part of a buffer of optimizer state.
  [[nodiscard]] static View<Dev> view_of(ParameterState<Dev>& parameter, Tensor<Dev>* state) {
    return state != nullptr ? ParameterStore<Dev>::of(*state, parameter) : parameter.value;
  }

  // Gathers values, or optimizer state. Stage by stage, the ranks of one replica send their parts to rank 0, after a
  // list from the first of them. Returns the names, on rank 0.
  std::vector<std::string> gather(Dev& dev, SafeTensorsWriter& writer, const std::string& prefix,
                                  Tensor<Dev>* state) {
    std::vector<std::string> names;
    auto& world = mesh_.world();
    const auto& shape = mesh_.shape();
    for (int stage = 0; stage < shape.pipeline; ++stage) {
      const auto rank_of = [&](int tensor) { return stage * shape.data * shape.tensor + tensor; };
      const bool mine = mesh_.pipeline_index() == stage && mesh_.data_index() == 0;
      if (mine && world.rank() != 0) send_parts(dev, state);
      if (world.rank() != 0) continue;
      const auto parts = shape.tensor;
      const auto entries = stage == 0 ? list(state) : receive_list(dev, rank_of(0));
      for (const auto& entry : entries) {
        const auto element = size_of(entry.dtype);
        std::vector<std::byte> whole(static_cast<std::size_t>(entry.spec.shape.count()) * element);
        const int holders = entry.spec.is_split() ? parts : 1;
        for (int tensor = 0; tensor < parts; ++tensor) {
          auto spec = entry.spec;
          if (spec.is_split()) spec.part = part_of(spec.shape[spec.split_dim], parts, tensor);
          const auto bytes = rank_of(tensor) == 0 ? own_bytes(dev, entry.spec.name, state)
                                                  : receive_bytes(dev, rank_of(tensor), entry.dtype,
                                                                  spec.local_shape().count());
          if (tensor >= holders) continue;  // a replica
          for_file_runs(spec, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
            std::memcpy(whole.data() + static_cast<std::size_t>(to) * element,
                        bytes.data() + static_cast<std::size_t>(from) * element,
                        static_cast<std::size_t>(count) * element);
          });
        }
        writer.add(prefix + entry.spec.name, entry.dtype, file_shape(entry.spec), std::move(whole));
        names.push_back(entry.spec.name);
      }
    }
    return names;
  }

  [[nodiscard]] std::vector<Entry> list(Tensor<Dev>* state) const {
    std::vector<Entry> entries;
    for (const auto& parameter : store_.parameters())
      if (parameter->owned && !(state != nullptr && parameter->spec.buffer))
        entries.push_back({parameter->spec, view_of(*parameter, state).dtype()});
    return entries;
  }
  [[nodiscard]] ParameterState<Dev>& parameter_named(const std::string& name) const {
    for (const auto& parameter : store_.parameters())
      if (parameter->spec.name == name) return *parameter;
    fail("parameter ", name, " is not on this rank");
  }
  [[nodiscard]] std::vector<std::byte> own_bytes(Dev& dev, const std::string& name,
                                                 Tensor<Dev>* state) const {
    const ConstView<Dev> view = view_of(parameter_named(name), state);
    std::vector<std::byte> bytes(view.size_bytes());
    dev.copy_to_host(bytes.data(), view.bytes(), bytes.size());
    return bytes;
  }
  void send_parts(Dev& dev, Tensor<Dev>* state) {
    const auto entries = list(state);
    if (mesh_.tensor().rank() == 0) {
      auto json = nlohmann::json::array();
      for (const auto& [spec, dtype] : entries) {
        std::vector<std::int64_t> extents;
        for (int dim = 0; dim < spec.shape.rank(); ++dim) extents.push_back(spec.shape[dim]);
        json.push_back({spec.name, extents, spec.split_dim, static_cast<int>(spec.file_order),
                        static_cast<int>(dtype)});
      }
      const auto text = json.dump();
      send_values(dev, std::vector<std::int64_t>{static_cast<std::int64_t>(text.size())});
      send_values(dev, std::vector<std::uint8_t>(text.begin(), text.end()));
    }
    for (const auto& entry : entries) {
      const ConstView<Dev> part = view_of(parameter_named(entry.spec.name), state);
      mesh_.world().send(dev, clone(dev, part), 0);
    }
  }
  template <class T>
  void send_values(Dev& dev, const std::vector<T>& values) {
    auto message = Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values);
    mesh_.world().send(dev, std::move(message), 0);
  }
  [[nodiscard]] std::vector<Entry> receive_list(Dev& dev, int from) {
    Tensor<Dev> length(dev, DType::i64, {1});
    mesh_.world().recv(dev, length.mut(), from);
    Tensor<Dev> text(dev, DType::u8, {length.template to_host<std::int64_t>(dev)[0]});
    mesh_.world().recv(dev, text.mut(), from);
    const auto bytes = text.template to_host<std::uint8_t>(dev);
    std::vector<Entry> entries;
    for (const auto& item : nlohmann::json::parse(bytes.begin(), bytes.end())) {
      Entry entry{{.name = item[0]}, static_cast<DType>(item[4].template get<int>())};
      for (const auto& extent : item[1])
        entry.spec.shape.push_back(extent.template get<std::int64_t>());
      entry.spec.split_dim = item[2];
      entry.spec.file_order = static_cast<FileOrder>(item[3].template get<int>());
      entries.push_back(std::move(entry));
    }
    return entries;
  }
  [[nodiscard]] std::vector<std::byte> receive_bytes(Dev& dev, int from, DType dtype,
                                                     std::int64_t count) {
    Tensor<Dev> message(dev, dtype, {count});
    mesh_.world().recv(dev, message.mut(), from);
    std::vector<std::byte> bytes(message.size_bytes());
    dev.copy_to_host(bytes.data(), message.view().bytes(), bytes.size());
    return bytes;
  }

  /// PyTorch's strict loading needs the batch counters of its batch norms.
  static void add_batch_counters(SafeTensorsWriter& writer, const std::vector<std::string>& names,
                                 std::int64_t updates) {
    constexpr std::string_view suffix = ".running_mean";
    for (const auto& name : names) {
      if (!name.ends_with(suffix)) continue;
      std::vector<std::byte> bytes(sizeof updates);
      std::memcpy(bytes.data(), &updates, sizeof updates);
      writer.add(name.substr(0, name.size() - suffix.size()) + ".num_batches_tracked", DType::i64,
                 {}, std::move(bytes));
    }
  }

  void read_part(Dev& dev, const SafeTensors& file, const std::string& name,
                 const ParameterState<Dev>& parameter, View<Dev> to) const {
    const auto& spec = parameter.spec;
    const auto* stored = file.find(name);
    check(stored != nullptr, file.path(), " has no tensor ", name,
          "; it was saved from another model or optimizer");
    check(stored->shape == file_shape(spec), "tensor ", name, " of ", file.path(),
          " has another shape than the model's ", spec.shape,
          spec.file_order == FileOrder::same ? "" : " (kernel axes last in the file)",
          "; were the model's options the same?");
    check(is_floating(stored->dtype), "tensor ", name, " of ", file.path(), " is of ",
          stored->dtype, ", not of a floating-point type");
    const auto whole = file.read(*stored);
    const auto element = size_of(stored->dtype);
    std::vector<std::byte> part(static_cast<std::size_t>(to.count()) * element);
    for_file_runs(spec, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
      std::memcpy(part.data() + static_cast<std::size_t>(at) * element,
                  whole.data() + static_cast<std::size_t>(from) * element,
                  static_cast<std::size_t>(count) * element);
    });
    Tensor<Dev> read(dev, stored->dtype, to.shape());
    dev.copy_from_host(read.mut().bytes(), part.data(), part.size());
    cast(dev, read.view(), to);
  }

  Mesh<Dev>& mesh_;
  ParameterStore<Dev>& store_;
  Optimizer<Dev>& optimizer_;
};

}  // namespace dhp
