// A shard: the pieces that one rank writes, as one safetensors file. Whole tensors keep their name and shape; a partial
// piece is a flat array whose name encodes which elements it holds.
#pragma once

#include <dhp/ops/elementwise.hpp>
#include <dhp/tensor/tensor.hpp>
#include <dhp/train/checkpoint_index.hpp>

#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail::checkpoint {

/// Returns "NAME" or "NAME[dim 0: 16-32][0-4096]": the range of a dimension, then the range of elements in it.
inline std::string name_in_shard(const Piece& piece) {
  auto name = piece.name;
  if (piece.split_dim >= 0)
    name += concat("[dim ", piece.split_dim, ": ", piece.part.first, "-", piece.part.last, "]");
  if (piece.count() != piece.box().count())
    name += concat("[", piece.range.first, "-", piece.range.last, "]");
  return name;
}

inline std::vector<std::int64_t> shape_in_shard(const Piece& piece) {
  const auto box = piece.box();
  if (piece.count() != box.count()) return {piece.count()};
  return {box.begin(), box.end()};
}

/// Copies a piece to the file block by block. Returns the blocks' checksums.
template <class Dev>
std::vector<std::uint32_t> write_blocks(Dev& dev, const HeldPiece<Dev>& held, OpenFile& file) {
  std::vector<std::uint32_t> sums;
  const auto size = held.piece.bytes();
  std::vector<std::byte> block(std::min(size, checkpoint_block));
  for (std::size_t at = 0; at < size; at += checkpoint_block) {
    block.resize(std::min(size - at, checkpoint_block));
    dev.copy_to_host(block.data(), held.data.bytes() + at, block.size());
    sums.push_back(crc32c(block));
    file.write(block);
  }
  return sums;
}

}  // namespace detail::checkpoint

namespace detail {
/// Writes the pieces to FOLDER/NAME and waits until they are on disk. Returns an index of these pieces only.
template <class Dev>
[[nodiscard]] CheckpointIndex write_shard(Dev& dev, const std::string& folder,
                                          const std::string& name,
                                          const std::vector<HeldPiece<Dev>>& pieces) {
  CheckpointIndex index;
  SafeTensorsWriter writer;
  std::vector<StoredPiece> stored(pieces.size());
  for (std::size_t at = 0; at < pieces.size(); ++at) {
    const auto& piece = pieces[at].piece;
    const auto first = writer.add(checkpoint::name_in_shard(piece), piece.dtype,
                                  checkpoint::shape_in_shard(piece), [&, at](OpenFile& file) {
                                    stored[at].sums =
                                        checkpoint::write_blocks(dev, pieces[at], file);
                                  });
    stored[at] = {piece, name, first, {}};
  }
  const auto head = writer.head();
  index.files[name] = checked(head);
  OpenFile file(folder + "/" + name, O_WRONLY | O_CREAT | O_EXCL);
  writer.write(file);
  file.sync();
  for (auto& piece : stored) {
    piece.first += head.size();
    index.tensors[piece.piece.name].push_back(std::move(piece));
  }
  return index;
}

inline constexpr int checkpoint_format = 2;
struct OtherFormat : Error {
  using Error::Error;
};
}  // namespace detail

/// SavedPieces reads any piece of any tensor from a checkpoint, however the tensor was cut when it was saved. It
/// verifies the checksums of all bytes it reads. Throws Error if something is damaged or missing, OtherFormat if
/// another version of dhp has written it.
class SavedPieces {
 public:
  /// folder: a checkpoint with an index.json.
  explicit SavedPieces(const std::string& folder)
      : folder_(folder),
        index_(CheckpointIndex::parse(text_of(path("index.json")), path("index.json"))) {
    const auto fact = [&](const char* name) { return index_.about.value(name, nlohmann::json()); };
    if (fact("format") != detail::checkpoint_format)
      throw detail::OtherFormat(concat(folder, " has the format ", fact("format").dump(),
                                       ", written by dhp ", fact("dhp").dump(),
                                       "; this program reads format ", detail::checkpoint_format,
                                       ": build it with that dhp"));
  }

  [[nodiscard]] const CheckpointIndex& index() const { return index_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ + "/" + name; }
  /// Returns null if the tensor was not saved.
  [[nodiscard]] const std::vector<detail::StoredPiece>* find(const std::string& tensor) const {
    const auto found = index_.tensors.find(tensor);
    return found == index_.tensors.end() ? nullptr : &found->second;
  }

  /// Copies elements of one tensor to `to`, in the tensor's saved type.
  void read(const Piece& wanted, std::byte* to) {
    const auto* pieces = find(wanted.name);
    check(pieces != nullptr, folder_, " has no tensor ", wanted.name,
          "; it was saved from another model or optimizer");
    const auto& saved = pieces->front().piece;
    check(saved.shape == wanted.shape, "tensor ", wanted.name, " of ", folder_, " has the shape ",
          saved.shape, ", the model's has ", wanted.shape, "; were the model's options the same?");
    const auto element = size_of(saved.dtype);
    std::int64_t got = 0;
    for (const auto& piece : *pieces)
      detail::for_common_extents(
          piece.piece, wanted, [&](std::int64_t from, std::int64_t at, std::int64_t count) {
            got += count;
            read_bytes(piece, detail::as_size(from) * element,
                       {to + detail::as_size(at) * element, detail::as_size(count) * element});
          });
    check(got == wanted.count(), "tensor ", wanted.name, " of ", folder_, " is damaged: ", got,
          " of ", wanted.count(), " elements are in its pieces");
  }

  /// Copies elements of one tensor to the device and converts their type.
  template <class Dev>
  void read(Dev& dev, const HeldPiece<Dev>& wanted) {
    constexpr std::int64_t most = 1 << 20;  // elements on the host at a time
    const auto* pieces = find(wanted.piece.name);
    const auto dtype = pieces == nullptr ? wanted.piece.dtype : pieces->front().piece.dtype;
    check(is_floating(dtype), "tensor ", wanted.piece.name, " of ", folder_, " is of ", dtype,
          ", not of a floating-point type");
    std::vector<std::byte> host;
    for (std::int64_t at = 0; at < wanted.piece.count(); at += most) {
      const auto part = wanted.piece.slice(at, std::min(at + most, wanted.piece.count()));
      host.resize(detail::as_size(part.count()) * size_of(dtype));
      read(part, host.data());
      Tensor<Dev> staged(dev, dtype, {part.count()});
      dev.copy_from_host(staged.mut().bytes(), host.data(), host.size());
      cast(dev, staged.view(), wanted.data.slice(at, at + part.count()));
    }
  }

 private:
  /// Reads bytes of a stored piece and verifies the checksums of their blocks.
  void read_bytes(const detail::StoredPiece& stored, std::size_t from, std::span<std::byte> to) {
    while (!to.empty()) {
      const auto number = from / detail::checkpoint_block;
      const auto inside = from % detail::checkpoint_block;
      const auto& block = read_block(stored, number);
      const auto count = std::min(to.size(), block.size() - inside);
      std::memcpy(to.data(), block.data() + inside, count);
      from += count;
      to = to.subspan(count);
    }
  }
  const std::vector<std::byte>& read_block(const detail::StoredPiece& stored, std::size_t number) {
    if (block_of_ == &stored && block_number_ == number) return block_;
    block_of_ = nullptr;
    const auto& file = open(stored.file);
    const auto first = number * detail::checkpoint_block;
    block_.resize(std::min(stored.piece.bytes() - first, detail::checkpoint_block));
    file.read(stored.first + first, block_);
    check(detail::crc32c(block_) == stored.sums[number], path(stored.file), " is damaged: tensor ",
          stored.piece.name, " has another checksum than when it was saved, in the block at byte ",
          stored.first + first);
    block_of_ = &stored;
    block_number_ = number;
    return block_;
  }
  /// Returns the shard; opening it verifies its head.
  const OpenFile& open(const std::string& name) {
    const auto opened = shards_.find(name);
    if (opened != shards_.end()) return opened->second;
    const auto& file = shards_.try_emplace(name, path(name), O_RDONLY).first->second;
    const auto found = index_.files.find(name);
    check(found != index_.files.end(), path("index.json"), " is damaged: it has no file ", name);
    std::vector<std::byte> head(detail::as_size(std::min(found->second.bytes, file.size())));
    file.read(0, head);
    check(head.size() == found->second.bytes && detail::crc32c(head) == found->second.sum,
          path(name), " is damaged: its header has another checksum than when it was saved");
    return file;
  }

  std::string folder_;
  CheckpointIndex index_;
  std::map<std::string, OpenFile> shards_;
  std::vector<std::byte> block_;  // the block read last
  const detail::StoredPiece* block_of_ = nullptr;
  std::size_t block_number_ = 0;
};

}  // namespace dhp
