// Saved models: a directory with model.safetensors (weights and buffers, under the names and in the axis
// order of weight files), optimizer.safetensors and state.json. Tensors are gathered to rank 0 and written
// unsplit, so that they load under any other layout. Needs nlohmann/json.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/core/config.hpp>
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

/// Place in the file of each element of memory order, counted in elements.
[[nodiscard]] inline std::int64_t file_place(const ParameterSpec& spec, std::int64_t element) {
  if (spec.file_order == FileOrder::same) return element;
  const auto inputs = spec.shape[3];
  const auto window = spec.shape[1] * spec.shape[2];
  const auto input = element % inputs;
  const auto rest = element / inputs;  // out * window + position in the window
  return (rest / window * inputs + input) * window + rest % window;
}

/// Place in the unsplit tensor, memory order, of an element of this rank's part.
[[nodiscard]] inline std::int64_t unsplit_place(const ParameterSpec& spec, Range part,
                                                std::int64_t element) {
  if (!spec.is_split()) return element;
  std::int64_t inner = 1;
  for (int dim = spec.split_dim + 1; dim < spec.shape.rank(); ++dim) inner *= spec.shape[dim];
  const auto local = part.size() * inner;
  return element / local * spec.shape[spec.split_dim] * inner + part.first * inner +
         element % local;
}

template <class Dev>
class Checkpoint {
 public:
  /// Keeps references: mesh, store and optimizer outlive it.
  Checkpoint(Mesh<Dev>& mesh, ParameterStore<Dev>& store, Optimizer<Dev>& optimizer)
      : mesh_(mesh), store_(store), optimizer_(optimizer) {}

  /// Makes the directory, on rank 0, so that one that cannot be written to is known before training.
  void prepare(const std::string& directory) {
    if (mesh_.world().rank() != 0) return;
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    check(!error, "cannot make the directory ", directory, ": ", error.message());
    check(::access(directory.c_str(), W_OK) == 0, "cannot write to ", directory, ": ",
          std::strerror(errno));
  }

  /// Collective over the mesh; rank 0 writes. What was in the directory stays good until the new files are
  /// complete.
  void save(Dev& dev, const std::string& directory, const TrainingProgress& progress) {
    const bool writes = mesh_.world().rank() == 0;
    prepare(directory);
    SafeTensorsWriter model;
    gather(
        dev, model, "", [](ParameterState<Dev>& parameter) { return parameter.value; },
        [](const ParameterSpec&) { return true; });
    if (writes) {
      add_batch_counters(model, progress.updates);
      model.write(directory + "/model.safetensors");
    }
    SafeTensorsWriter state;
    for (const auto& buffer : optimizer_.state())
      gather(
          dev, state, buffer.name + ".",
          [&](ParameterState<Dev>& parameter) {
            return ParameterStore<Dev>::of(*buffer.buffer, parameter);
          },
          [](const ParameterSpec& spec) { return !spec.buffer; });
    if (writes) {
      state.write(directory + "/optimizer.safetensors");
      const nlohmann::ordered_json json{
          {"format", 1},
          {"dhp", concat(version_major, ".", version_minor, ".", version_patch)},
          {"steps", progress.steps},
          {"updates", progress.updates},
          {"loss_scale", progress.loss_scale},
          {"good_steps", progress.good_steps}};
      const auto text = json.dump(2) + "\n";
      detail::replace_file(directory + "/state.json", [&](detail::OpenFile& file) {
        file.write(std::as_bytes(std::span(text.data(), text.size())));
      });
    }
    mesh_.world().barrier();
  }

  /// Every rank reads its parts. `path` is a saved directory, or a .safetensors file with weights alone:
  /// training then begins at step 0. Throws where a tensor is missing or has another shape.
  TrainingProgress load(Dev& dev, const std::string& path) {
    const bool is_directory = std::filesystem::is_directory(path);
    const SafeTensors model(is_directory ? path + "/model.safetensors" : path);
    for (const auto& parameter : store_.parameters())
      read_part(dev, model, parameter->spec.name, *parameter, parameter->value);
    optimizer_.values_changed(dev);
    if (!is_directory || !std::filesystem::exists(path + "/state.json")) return {};

    std::ifstream stream(path + "/state.json");
    const auto json = nlohmann::json::parse(stream, nullptr, false);
    const auto number = [&](const char* key) {
      check(json.is_object() && json.contains(key) && json[key].is_number(), path,
            "/state.json is damaged: it has no number \"", key, "\"");
      return json[key].get<double>();
    };
    const TrainingProgress progress{.steps = static_cast<std::int64_t>(number("steps")),
                                    .updates = static_cast<std::int64_t>(number("updates")),
                                    .loss_scale = number("loss_scale"),
                                    .good_steps = static_cast<int>(number("good_steps"))};
    const SafeTensors state(path + "/optimizer.safetensors");
    for (const auto& buffer : optimizer_.state()) {
      for (const auto& parameter : store_.parameters()) {
        if (parameter->spec.buffer) continue;
        const auto name = buffer.name + "." + parameter->spec.name;
        // Another precision may have had no masters; they were made from the weights above.
        if (buffer.name == "master" && state.find(name) == nullptr) continue;
        read_part(dev, state, name, *parameter,
                  ParameterStore<Dev>::of(*buffer.buffer, *parameter));
      }
    }
    return progress;
  }

 private:
  /// What a rank says of a parameter before it sends its part.
  struct Entry {
    std::string name;
    ParameterSpec spec;
    DType dtype;
  };

  // Stage by stage, rank 0 hears from the first rank of the tensor axis what comes, and from each rank
  // of it its part of every tensor. One replica speaks for all.
  template <class ViewOf, class Wanted>
  void gather(Dev& dev, SafeTensorsWriter& writer, const std::string& prefix, ViewOf view_of,
              Wanted wanted) {
    auto& world = mesh_.world();
    const auto& shape = mesh_.shape();
    for (int stage = 0; stage < shape.pipeline; ++stage) {
      const auto rank_of = [&](int tensor) { return stage * shape.data * shape.tensor + tensor; };
      const bool mine = mesh_.pipeline_index() == stage && mesh_.data_index() == 0;
      if (mine && world.rank() != 0) send_parts(dev, view_of, wanted);
      if (world.rank() != 0) continue;
      // Of stage 0, rank 0 knows the list itself.
      const auto parts = shape.tensor;
      const auto entries = stage == 0 ? list(wanted, view_of) : receive_list(dev, rank_of(0));
      for (int tensor = 1; tensor < parts; ++tensor) (void)receive_list(dev, rank_of(tensor));
      for (const auto& entry : entries) {
        const auto element = size_of(entry.dtype);
        std::vector<std::byte> whole(static_cast<std::size_t>(entry.spec.shape.count()) * element);
        const int holders = entry.spec.is_split() ? parts : 1;
        for (int tensor = 0; tensor < parts; ++tensor) {
          auto spec = entry.spec;
          if (spec.is_split()) spec.part = part_of(spec.shape[spec.split_dim], parts, tensor);
          const auto bytes = rank_of(tensor) == 0 ? own_bytes(dev, entry.name, view_of)
                                                  : receive_bytes(dev, rank_of(tensor), entry.dtype,
                                                                  spec.local_shape().count());
          if (tensor >= holders) continue;  // replicated: one copy is enough
          for (std::int64_t at = 0; at < spec.local_shape().count(); ++at)
            std::memcpy(whole.data() + static_cast<std::size_t>(
                                           file_place(spec, unsplit_place(spec, spec.part, at))) *
                                           element,
                        bytes.data() + static_cast<std::size_t>(at) * element, element);
        }
        writer.add(prefix + entry.name, entry.dtype, file_shape(entry.spec), std::move(whole));
        names_.push_back(entry.name);
      }
    }
  }

  template <class ViewOf, class Wanted>
  [[nodiscard]] std::vector<Entry> list(Wanted wanted, ViewOf view_of) const {
    std::vector<Entry> entries;
    for (const auto& parameter : store_.parameters())
      if (parameter->owned && wanted(parameter->spec))
        entries.push_back({parameter->spec.name, parameter->spec, view_of(*parameter).dtype()});
    return entries;
  }
  template <class ViewOf>
  [[nodiscard]] std::vector<std::byte> own_bytes(Dev& dev, const std::string& name,
                                                 ViewOf view_of) const {
    for (const auto& parameter : store_.parameters())
      if (parameter->spec.name == name) {
        const ConstView<Dev> view = view_of(*parameter);
        std::vector<std::byte> bytes(view.size_bytes());
        dev.copy_to_host(bytes.data(), view.bytes(), bytes.size());
        return bytes;
      }
    fail("parameter ", name, " is not on this rank");
  }
  template <class ViewOf, class Wanted>
  void send_parts(Dev& dev, ViewOf view_of, Wanted wanted) {
    const auto entries = list(wanted, view_of);
    auto json = nlohmann::json::array();
    for (const auto& entry : entries) {
      std::vector<std::int64_t> extents;
      for (int dim = 0; dim < entry.spec.shape.rank(); ++dim)
        extents.push_back(entry.spec.shape[dim]);
      json.push_back({entry.name, extents, entry.spec.split_dim,
                      static_cast<int>(entry.spec.file_order), static_cast<int>(entry.dtype)});
    }
    const auto text = json.dump();
    send_values(dev, std::vector<std::int64_t>{static_cast<std::int64_t>(text.size())});
    send_values(dev, std::vector<std::uint8_t>(text.begin(), text.end()));
    for (const auto& parameter : store_.parameters())
      if (parameter->owned && wanted(parameter->spec))
        mesh_.world().send(dev, view_of(*parameter), 0);
  }
  template <class T>
  void send_values(Dev& dev, const std::vector<T>& values) {
    const auto message =
        Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values);
    mesh_.world().send(dev, message.view(), 0);
  }
  [[nodiscard]] std::vector<Entry> receive_list(Dev& dev, int from) {
    Tensor<Dev> length(dev, DType::i64, {1});
    mesh_.world().recv(dev, length.mut(), from);
    Tensor<Dev> text(dev, DType::u8, {length.template to_host<std::int64_t>(dev)[0]});
    mesh_.world().recv(dev, text.mut(), from);
    const auto bytes = text.template to_host<std::uint8_t>(dev);
    std::vector<Entry> entries;
    for (const auto& item : nlohmann::json::parse(bytes.begin(), bytes.end())) {
      Entry entry{item[0], {}, static_cast<DType>(item[4].template get<int>())};
      entry.spec.name = entry.name;
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

  /// PyTorch's batch norms count their batches; its strict loading wants the counters.
  void add_batch_counters(SafeTensorsWriter& writer, std::int64_t updates) {
    constexpr std::string_view suffix = ".running_mean";
    for (const auto& name : names_) {
      if (!name.ends_with(suffix)) continue;
      std::vector<std::byte> bytes(sizeof updates);
      std::memcpy(bytes.data(), &updates, sizeof updates);
      writer.add(name.substr(0, name.size() - suffix.size()) + ".num_batches_tracked", DType::i64,
                 {}, std::move(bytes));
    }
    names_.clear();
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
    const auto bytes = file.read(*stored);
    std::vector<double> values(static_cast<std::size_t>(to.count()));
    visit_floating(stored->dtype, [&]<class T>(Tag<T>) {
      for (std::size_t at = 0; at < values.size(); ++at) {
        T value;
        const auto place =
            file_place(spec, unsplit_place(spec, spec.part, static_cast<std::int64_t>(at)));
        std::memcpy(&value, bytes.data() + static_cast<std::size_t>(place) * sizeof(T), sizeof(T));
        values[at] = static_cast<double>(value);
      }
    });
    const auto wide = Tensor<Dev>::from_host(dev, to.shape(), values);
    cast(dev, wide.view(), to);
  }

  Mesh<Dev>& mesh_;
  ParameterStore<Dev>& store_;
  Optimizer<Dev>& optimizer_;
  std::vector<std::string> names_;
};

}  // namespace dhp
