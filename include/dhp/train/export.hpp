// Exports a checkpoint's weights to one file for other programs: whole tensors with the names and axis order of
// PyTorch's models; GPT-2's queries, keys and values are joined. Only one tensor of the file is in memory at a time.
// Needs nlohmann/json.
#pragma once

#include <dhp/core/function_ref.hpp>
#include <dhp/nn/low_rank_options.hpp>
#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/gpt2_conv1d.hpp>
#include <dhp/train/name_map.hpp>
#include <dhp/train/read_piece.hpp>
#include <dhp/train/shard.hpp>

#include <cstring>
#include <string>
#include <vector>

namespace dhp {

namespace detail {
/// Returns the whole tensor in the axis order of files.
[[nodiscard]] inline std::vector<std::byte> whole_tensor(SavedPieces& saved, const Piece& any) {
  Piece whole{
      .name = any.name, .shape = any.shape, .dtype = any.dtype, .file_order = any.file_order};
  whole.range = {0, whole.shape.count()};
  std::vector<std::byte> bytes(whole.bytes());
  saved.read(whole, bytes.data());
  if (whole.file_order == FileOrder::same) return bytes;
  std::vector<std::byte> turned(bytes.size());
  const auto element = size_of(whole.dtype);
  for_file_runs(whole, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    std::memcpy(turned.data() + as_size(to) * element, bytes.data() + as_size(from) * element,
                as_size(count) * element);
  });
  return turned;
}

/// Adds the adapter's product (nn/low_rank.hpp) to a layer's whole weight [out, in]; sums are in double.
inline void merge_adapter(SavedPieces& saved, const std::string& layer, double scale,
                          std::vector<std::byte>& weight) {
  const auto* const a = saved.find(layer + ".lora_A.weight");
  const auto* const b = saved.find(layer + ".lora_B.weight");
  if (a == nullptr || b == nullptr) return;
  const auto& inner = a->front().piece;  // [rank, in]
  const auto& outer = b->front().piece;  // [out, rank]
  const auto inner_bytes = whole_tensor(saved, inner);
  const auto outer_bytes = whole_tensor(saved, outer);
  visit_floating(inner.dtype, [&]<class T>(TypeTag<T>) {
    const auto as = [](const std::vector<std::byte>& bytes) {
      return reinterpret_cast<const T*>(bytes.data());
    };
    auto* const to = reinterpret_cast<T*>(weight.data());
    const auto rank = inner.shape[0], columns = inner.shape[1];
    std::vector<double> row(as_size(columns));
    for (std::int64_t out = 0; out < outer.shape[0]; ++out) {
      std::fill(row.begin(), row.end(), 0);
      for (std::int64_t k = 0; k < rank; ++k) {
        const double factor = scale * static_cast<double>(as(outer_bytes)[out * rank + k]);
        for (std::int64_t in = 0; in < columns; ++in)
          row[as_size(in)] += factor * static_cast<double>(as(inner_bytes)[k * columns + in]);
      }
      for (std::int64_t in = 0; in < columns; ++in) {
        auto& value = to[out * columns + in];
        value = static_cast<T>(static_cast<double>(value) + row[as_size(in)]);
      }
    }
  });
}
/// Returns a layer's tensors joined as in GPT-2's files. whole(name) returns a whole tensor of the model.
inline std::vector<std::byte> as_conv1d(
    const Piece& piece, Conv1dPlace place,
    FunctionRef<std::vector<std::byte>(const std::string&)> whole) {
  const auto element = size_of(piece.dtype);
  const auto count = as_size(piece.shape.count());
  std::vector<std::byte> result(count * as_size(place.parts) * element);
  for (place.part = 0; place.part < place.parts; ++place.part) {
    const auto part = whole(place.model_name());
    for (std::size_t at = 0; at < count; ++at) {
      const auto to = place.file_place(piece.shape, static_cast<std::int64_t>(at));
      std::memcpy(result.data() + as_size(to) * element, part.data() + at * element, element);
    }
  }
  return result;
}
/// Opens a checkpoint, or the newest one of a run's folder.
[[nodiscard]] inline SavedPieces saved_in(const std::string& folder) {
  const CheckpointFolder all(folder);
  const auto names = all.names();
  return SavedPieces(names.empty() ? folder : all.path(names.front()));
}
}  // namespace detail

/// Reads the checkpoint in `folder`, or the newest one of a run's folder, and writes the weight file `path`. Not
/// collective: only one rank calls it.
/// adapter_scale: if not 0, merges adapters into the weights with this LowRankOptions::scale().
inline void export_weights(const std::string& folder, const std::string& path,
                           double adapter_scale = 0) {
  auto saved = detail::saved_in(folder);
  SafeTensorsWriter writer;
  writer.note("format", "pt");  // Hugging Face's loaders require it
  constexpr std::string_view mean = ".running_mean";
  const auto& about = saved.index().about;
  const auto batches =
      about.value("updates", std::int64_t{0}) + about.value("batches_before", std::int64_t{0});
  const auto merged = [&](const std::string& name) {
    auto whole = detail::whole_tensor(saved, saved.find(name)->front().piece);
    constexpr std::string_view weight = ".weight";
    if (adapter_scale != 0 && name.ends_with(weight))
      detail::merge_adapter(saved, name.substr(0, name.size() - weight.size()), adapter_scale,
                            whole);
    return whole;
  };
  for (const auto& tensor : saved.index().tensors) {
    const auto& name = tensor.first;
    if (name.starts_with("optimizer/") || is_of_adapter(name)) continue;
    const auto& piece = tensor.second.front().piece;
    const detail::Conv1dPlace place(name);
    if (place.part > 0) continue;  // stored together with part 0
    writer.add(place.name, piece.dtype,
               place.file_shape(detail::file_shape(piece.shape, piece.file_order)),
               [&, place](OpenFile& file) {
                 file.write(place.moves() ? detail::as_conv1d(piece, place, merged) : merged(name));
               });
    // PyTorch's strict loading requires the counters.
    if (name.ends_with(mean))
      writer.add(name.substr(0, name.size() - mean.size()) + detail::batch_counter, DType::i64, {},
                 [batches](OpenFile& file) { file.write(std::as_bytes(std::span(&batches, 1))); });
  }
  writer.write(path);
}

/// Writes a checkpoint's adapters as PEFT's adapter_model.safetensors, and the weights whose names begin with `head`
/// unless it is empty.
inline void export_adapter(const std::string& folder, const std::string& path,
                           const std::string& head) {
  auto saved = detail::saved_in(folder);
  SafeTensorsWriter writer;
  writer.note("format", "pt");
  const auto add = [&](const std::string& as, const Piece& piece) {
    writer.add("base_model.model." + as, piece.dtype,
               detail::file_shape(piece.shape, piece.file_order),
               [&](OpenFile& file) { file.write(detail::whole_tensor(saved, piece)); });
  };
  for (const auto& [name, pieces] : saved.index().tensors) {
    const bool of_head = !head.empty() && name.starts_with(head);
    if (name.starts_with("optimizer/") || !(is_of_adapter(name) || of_head)) continue;
    add(name, pieces.front().piece);
  }
  // PEFT needs all tensors of a head, also the two that BERT's decoder shares with other layers.
  const auto* const bias = head.empty() ? nullptr : saved.find(head + "predictions.bias");
  const auto* const words = saved.find("bert.embeddings.word_embeddings.weight");
  if (bias == nullptr || words == nullptr) return writer.write(path);
  add(head + "predictions.decoder.bias", bias->front().piece);
  add(head + "predictions.decoder.weight", words->front().piece);
  writer.write(path);
}

}  // namespace dhp
