// Reads a piece of a tensor from a .safetensors file of whole tensors, with PyTorch's names and axis order.
#pragma once

#include <dhp/nn/parameter_store.hpp>
#include <dhp/train/gpt2_conv1d.hpp>
#include <dhp/train/safetensors.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Returns a tensor's extents in a file: [O, K, K, I] in memory may be [O, I, K, K] in files.
[[nodiscard]] inline std::vector<std::int64_t> file_shape(const Shape& shape, FileOrder order) {
  if (order == FileOrder::out_kernel_in_as_out_in_kernel)
    return {shape[0], shape[3], shape[1], shape[2]};
  return {shape.begin(), shape.end()};
}

/// Returns the index of an element in the file; `element` is its index in memory.
[[nodiscard]] inline std::int64_t file_place(const Shape& shape, FileOrder order,
                                             std::int64_t element) {
  if (order == FileOrder::same) return element;
  const auto inputs = shape[3];
  const auto window = shape[1] * shape[2];
  const auto input = element % inputs;
  const auto rest = element / inputs;  // out * window + position in the window
  return (rest / window * inputs + input) * window + rest % window;
}

/// Calls move(index in the file, index in the piece, count) for each run of the piece's elements that is contiguous in
/// both.
void for_file_runs(const Piece& piece, auto move) {
  for (Extents runs(piece); !runs.done(); runs.next()) {
    const auto run = runs.now();
    if (piece.file_order == FileOrder::same) {
      move(run.whole, run.held, run.count);
      continue;
    }
    for (std::int64_t at = 0; at < run.count; ++at)
      move(file_place(piece.shape, piece.file_order, run.whole + at), run.held + at, 1);
  }
}

/// Reads a piece of the tensor `name`: the file's bytes from its first to its last element. Throws Error if the tensor
/// is missing or has another shape.
template <class Dev>
void read_piece(Dev& dev, const SafeTensors& file, const std::string& name,
                const HeldPiece<Dev>& wanted) {
  const auto& piece = wanted.piece;
  const auto* stored = file.find(name);
  check(stored != nullptr, file.path(), " has no tensor ", name,
        "; it was saved from another model or optimizer");
  const Conv1dPlace place(piece.name);
  const auto expected = place.file_shape(file_shape(piece.shape, piece.file_order));
  check(stored->shape == expected, "tensor ", name, " of ", file.path(), " has the shape ",
        nlohmann::json(stored->shape).dump(), ", another shape than the model's ",
        nlohmann::json(expected).dump(),
        " in files; were the model's options the same, or is this a new layer (--new-head)?");
  check(is_floating(stored->dtype), "tensor ", name, " of ", file.path(), " is of ", stored->dtype,
        ", not of a floating-point type");
  if (piece.count() == 0) return;
  const auto for_runs = [&](auto move) {
    for_file_runs(piece, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
      if (!place.moves()) return move(from, at, count);
      for (std::int64_t next = 0; next < count; ++next)
        move(place.file_place(piece.shape, from + next), at + next, 1);
    });
  };
  auto needed = *stored;  // from the piece's first element to its last one
  std::swap(needed.first, needed.last);
  const auto element = size_of(stored->dtype);
  for_runs([&](std::int64_t from, std::int64_t, std::int64_t count) {
    needed.first = std::min(needed.first, stored->first + as_size(from) * element);
    needed.last = std::max(needed.last, stored->first + as_size(from + count) * element);
  });
  const auto skipped = needed.first - stored->first;
  const auto bytes = file.read(needed);
  std::vector<std::byte> part(as_size(piece.count()) * element);
  for_runs([&](std::int64_t from, std::int64_t at, std::int64_t count) {
    std::memcpy(part.data() + as_size(at) * element,
                bytes.data() + as_size(from) * element - skipped, as_size(count) * element);
  });
  Tensor<Dev> read(dev, stored->dtype, {piece.count()});
  dev.copy_from_host(read.mut().bytes(), part.data(), part.size());
  cast(dev, read.view(), wanted.data);
}

}  // namespace dhp::detail
