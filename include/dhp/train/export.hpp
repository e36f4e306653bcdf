// A checkpoint's weights as one file, for others: whole tensors under the names and in the axis order that PyTorch's
// models have. One tensor is in memory at a time. Needs nlohmann/json.
#pragma once

#include <dhp/train/shard.hpp>
#include <dhp/train/weight_file.hpp>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The whole tensor, in file order.
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
    std::memcpy(turned.data() + static_cast<std::size_t>(to) * element,
                bytes.data() + static_cast<std::size_t>(from) * element,
                static_cast<std::size_t>(count) * element);
  });
  return turned;
}

/// Reads the checkpoint in `folder` and writes the weight file `path`. Called by one rank, or without any.
inline void export_weights(const std::string& folder, const std::string& path) {
  SavedPieces saved(folder);
  SafeTensorsWriter writer;
  writer.note("format", "pt");  // Hugging Face's loaders ask for it
  constexpr std::string_view mean = ".running_mean";
  const auto& about = saved.index().about;
  const auto updates = about.value("updates", std::int64_t{0});
  for (const auto& [name, pieces] : saved.index().tensors) {
    if (name.starts_with("optimizer/")) continue;
    const auto& piece = pieces.front().piece;
    writer.add(name, piece.dtype, file_shape(piece.shape, piece.file_order),
               [&](OpenFile& file) { file.write(whole_tensor(saved, piece)); });
    // PyTorch's batch norms count their batches; its strict loading wants the counters.
    if (name.ends_with(mean))
      writer.add(name.substr(0, name.size() - mean.size()) + ".num_batches_tracked", DType::i64, {},
                 [updates](OpenFile& file) { file.write(std::as_bytes(std::span(&updates, 1))); });
  }
  writer.write(path);
}

}  // namespace dhp
