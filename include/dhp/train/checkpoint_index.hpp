// The index of a checkpoint, one JSON file beside the shards: the place of each piece of each tensor, the checksum of
// each block, and the run's own record. Needs nlohmann/json.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/core/fields.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/nn/pieces.hpp>
#include <dhp/train/checkpoint_folder.hpp>
#include <dhp/train/run_state.hpp>
#include <dhp/train/safetensors.hpp>
#include <dhp/train/weight_files.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
/// Bytes under one checksum. A reader of a part of a piece reads only the blocks of this part.
inline constexpr std::size_t checkpoint_block = std::size_t{1} << 20;

/// Size and checksum of a whole file, such as the vocabulary, or of a shard's header.
struct CheckedBytes {
  std::uint64_t bytes = 0;
  std::uint32_t sum = 0;  ///< CRC-32C
};
struct StoredPiece {
  Piece piece;
  std::string file;                 ///< name of the shard
  std::uint64_t first = 0;          ///< the piece's first byte in the file
  std::vector<std::uint32_t> sums;  ///< CRC-32C of each block
};
[[nodiscard]] inline CheckedBytes checked(const std::string& text) {
  return {text.size(), crc32c(std::as_bytes(std::span(text.data(), text.size())))};
}
}  // namespace detail

namespace detail::checkpoint {

inline std::string first_line(const std::string& rest) {
  return "{\"crc32c\": \"" + digits_of(checked(rest).sum, 8, 16) + "\",\n";
}

inline nlohmann::ordered_json to_json(const StoredPiece& stored) {
  const auto& piece = stored.piece;
  nlohmann::ordered_json json{{"range", {piece.range.first, piece.range.last}},
                              {"file", stored.file},
                              {"first", stored.first},
                              {"crc32c", stored.sums}};
  if (piece.split_dim >= 0) json["part"] = {piece.split_dim, piece.part.first, piece.part.last};
  return json;
}

/// A JSON object of a checkpoint. A field that is missing or has another type is damage, reported by its name.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& json, std::string path, std::string where)
      : json_(&json), path_(std::move(path)), where_(std::move(where)) {
    need(json.is_object(), "is no object");
  }
  [[nodiscard]] std::int64_t number(const char* name) const { return number(at(name), name); }
  [[nodiscard]] std::string text(const char* name) const {
    need(at(name).is_string(), concat("has a ", name, " that is no text"));
    return at(name).get<std::string>();
  }
  [[nodiscard]] std::vector<std::int64_t> numbers(const char* name) const {
    need(at(name).is_array(), concat("has a ", name, " that is no list"));
    std::vector<std::int64_t> all;
    for (const auto& item : at(name)) all.push_back(number(item, name));
    return all;
  }
  [[nodiscard]] bool has(const char* name) const { return json_->contains(name); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const nlohmann::json& at(const char* name) const {
    need(has(name), concat("has no ", name));
    return (*json_)[name];
  }
  void need(bool good, const std::string& what) const {
    check(good, path_, " is damaged: ", where_, " ", what);
  }

 private:
  [[nodiscard]] std::int64_t number(const nlohmann::json& item, const char* name) const {
    need(item.is_number_unsigned() && item.get<std::uint64_t>() < std::uint64_t{1} << 56,
         concat("has a ", name, " that is no number from 0 to 2^56"));
    return item.get<std::int64_t>();
  }
  const nlohmann::json* json_;
  std::string path_, where_;
};

/// Visitors of a RunState: JsonWriter writes the fields to JSON, JsonReader reads them. A field that the JSON lacks
/// keeps its value. Integers must be at least 0, or -1 if the field was -1 before.
struct JsonWriter {
  nlohmann::ordered_json& json;

  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (std::is_class_v<T> && !std::is_same_v<T, std::string>) {
      nlohmann::ordered_json inner;
      T::visit(value, JsonWriter{inner});
      json[name] = std::move(inner);
    } else {
      json[name] = value;  // JSON stores NaN as null
    }
  }
};
struct JsonReader {
  const JsonObject& fields;

  template <class T>
  void operator()(const char* name, T& value) {
    if (!fields.has(name)) return;
    if constexpr (std::is_same_v<T, std::string>) {
      value = fields.text(name);
    } else if constexpr (std::is_class_v<T>) {
      const JsonObject inner(fields.at(name), fields.path(), name);
      T::visit(value, JsonReader{inner});
    } else if constexpr (std::is_floating_point_v<T>) {
      const auto& item = fields.at(name);
      fields.need(item.is_number() || item.is_null(), concat("has a ", name, " that is no number"));
      value = item.is_null() ? std::nan("") : item.get<T>();
    } else {
      const auto& item = fields.at(name);
      if (value == -1 && item == -1) return;  // -1 means not known
      constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
      const auto number = fields.number(name);
      value = static_cast<T>(sizeof(T) < 8 ? std::min(number, most) : number);
    }
  }
};

inline std::vector<StoredPiece> parse_tensor(const std::string& name, const nlohmann::json& json,
                                             const std::string& path, bool of_all_shards) {
  const JsonObject fields(json, path, "tensor " + name);
  Piece whole{.name = name};
  const auto dtype = safetensors::type_of(fields.text("dtype"));
  fields.need(dtype.has_value(), "has a dtype that dhp does not know");
  whole.dtype = *dtype;
  const auto extents = fields.numbers("shape");
  fields.need(extents.size() <= Shape::max_rank, "has too many dims");
  double product = 1;
  for (const auto extent : extents) product *= static_cast<double>(extent);
  fields.need(product < 7e16, "has a shape beyond all memory");
  for (const auto extent : extents) whole.shape.push_back(extent);
  if (fields.has("file_order")) whole.file_order = FileOrder::out_kernel_in_as_out_in_kernel;

  std::vector<StoredPiece> pieces;
  std::int64_t held = 0;
  fields.need(fields.at("pieces").is_array(), "has no list of pieces");
  for (const auto& item : fields.at("pieces")) {
    const JsonObject entry(item, path, "a piece of " + name);
    StoredPiece stored{whole, entry.text("file"), 0, {}};
    entry.need(stored.file.find('/') == std::string::npos, "lies in a file of another folder");
    auto& piece = stored.piece;
    if (entry.has("part")) {
      const auto part = entry.numbers("part");
      entry.need(part.size() == 3 && part[0] < whole.shape.rank() && part[1] < part[2] &&
                     part[2] <= whole.shape[static_cast<int>(part[0])],
                 "has a part that does not lie in the tensor");
      piece.split_dim = static_cast<int>(part[0]);
      piece.part = {part[1], part[2]};
    }
    const auto range = entry.numbers("range");
    entry.need(range.size() == 2 && range[0] <= range[1] && range[1] <= piece.box().count(),
               "has a range that does not lie in its box");
    piece.range = {range[0], range[1]};
    stored.first = static_cast<std::uint64_t>(entry.number("first"));
    for (const auto sum : entry.numbers("crc32c")) {
      entry.need(sum <= 0xffffffff, "has a checksum of more than 32 bits");
      stored.sums.push_back(static_cast<std::uint32_t>(sum));
    }
    entry.need(stored.sums.size() == (piece.bytes() + checkpoint_block - 1) / checkpoint_block,
               "has not as many checksums as blocks");
    held += piece.count();
    pieces.push_back(std::move(stored));
  }
  fields.need(!pieces.empty(), "has no pieces");
  fields.need(!of_all_shards || held == whole.shape.count(),
              concat("has ", whole.shape.count(), " elements, but its pieces have ", held));
  return pieces;
}

}  // namespace detail::checkpoint

struct CheckpointIndex {
  nlohmann::ordered_json about = nlohmann::ordered_json::object();  ///< the run's own record
  /// Checksums by file name: of a shard's header, or of any other file as a whole.
  std::map<std::string, detail::CheckedBytes> files;
  std::map<std::string, std::vector<detail::StoredPiece>> tensors;

  void add(const CheckpointIndex& other) {
    files.insert(other.files.begin(), other.files.end());
    for (const auto& [name, pieces] : other.tensors)
      tensors[name].insert(tensors[name].end(), pieces.begin(), pieces.end());
  }

  /// Throws Error if a file other than a shard is damaged or missing.
  void check_files(const std::string& folder) const {
    for (const auto& [name, saved] : files) {
      if (name.ends_with(".safetensors")) continue;  // SavedPieces checks shards when it reads them
      const auto path = folder + "/" + name;
      const auto now = detail::checked(text_of(path));
      check(now.bytes == saved.bytes && now.sum == saved.sum, path,
            " is damaged: its checksum is not the saved one");
    }
  }

  /// Returns the index as text. Its first line holds the checksum of all other lines.
  [[nodiscard]] std::string to_text() const {
    nlohmann::ordered_json json = about;
    for (const auto& [name, file] : files)
      json["files"][name] = {{"bytes", file.bytes}, {"crc32c", file.sum}};
    auto& all = json["tensors"] = nlohmann::ordered_json::object();
    for (const auto& [name, pieces] : tensors) {
      const auto& first = pieces.front().piece;
      auto& tensor = all[name];
      tensor["dtype"] = detail::safetensors::name_of(first.dtype);
      tensor["shape"] = std::vector(first.shape.begin(), first.shape.end());
      if (first.file_order != FileOrder::same) tensor["file_order"] = "out_in_kernel";
      for (const auto& piece : pieces)
        tensor["pieces"].push_back(detail::checkpoint::to_json(piece));
    }
    const auto rest = json.dump(1).substr(2) + "\n";
    return detail::checkpoint::first_line(rest) + rest;
  }
  /// Reads an index. path: the file's name for messages. Throws Error if the text is damaged or, if of_all_shards is
  /// true, if the pieces of a tensor do not cover the tensor.
  [[nodiscard]] static CheckpointIndex parse(const std::string& text, const std::string& path,
                                             bool of_all_shards = true) {
    const auto end = text.find('\n');
    check(end != std::string::npos &&
              text.substr(0, end + 1) == detail::checkpoint::first_line(text.substr(end + 1)),
          path, " is damaged: its checksum is not that of its text");
    std::string twice;
    auto json = detail::parse_strictly(text, twice);
    const detail::checkpoint::JsonObject fields(json, path, "the index");
    fields.need(twice.empty(), "has \"" + twice + "\" twice");
    CheckpointIndex index;
    fields.need(fields.at("files").is_object(), "has files that are no object");
    for (const auto& [name, item] : fields.at("files").items()) {
      const detail::checkpoint::JsonObject file(item, path, "file " + name);
      index.files[name] = {static_cast<std::uint64_t>(file.number("bytes")),
                           static_cast<std::uint32_t>(file.number("crc32c"))};
    }
    fields.need(fields.at("tensors").is_object(), "has tensors that are no object");
    for (const auto& [name, item] : fields.at("tensors").items())
      index.tensors[name] = detail::checkpoint::parse_tensor(name, item, path, of_all_shards);
    for (const auto* done : {"crc32c", "files", "tensors"}) json.erase(done);
    index.about = json;
    return index;
  }
};

namespace detail {
/// Reads a run's state from the JSON of the index or of another file.
[[nodiscard]] inline RunState run_state_of(const nlohmann::json& json, const std::string& path) {
  const checkpoint::JsonObject fields(json, path, "the run's state");
  for (const auto* name : {"steps", "updates", "loss_scale"}) (void)fields.at(name);
  RunState state{.samples = -1};
  RunState::visit(state, checkpoint::JsonReader{fields});
  fields.need(state.device.loss_scale >= 0, "has a loss_scale that is no number of 0 or more");
  return state;
}
/// The places where loading looks for a state, best first, and remarks on the folder.
struct StatePlaces {
  std::vector<std::string> places, remarks;
  void pass(Fields& fields) { fields(places, remarks); }
};
[[nodiscard]] inline StatePlaces state_places(const std::string& path) {
  if (WeightFiles::are_at(path) || is_there(path + "/index.json") || is_there(path + "/state.json"))
    return {{path}, {}};
  StatePlaces found;
  const CheckpointFolder folder(path);
  for (const auto& name : folder.names()) found.places.push_back(folder.path(name));
  for (const auto& part : folder.unfinished())
    if (part.ends_with(".part"))
      found.remarks.push_back(concat(folder.path(part), " is a save that was not finished"));
  if (const auto latest = folder.latest(); !latest.empty() && !is_there(folder.path(latest)))
    found.remarks.push_back(
        concat(folder.path("latest"), " names ", latest, ", which is not there"));
  return found;
}

/// Returns the name of the checkpoint with the best value of a measure in its RunRecord; of equal values, the newest.
/// Returns an empty name if no checkpoint has a value other than NaN.
[[nodiscard]] inline std::string best_checkpoint(const CheckpointFolder& folder,
                                                 const std::string& measure) {
  const bool lowest = lower_is_better(measure);
  std::string best;
  double best_value = 0;
  if (measure.empty()) return best;
  for (const auto& name : folder.names()) {
    const auto file = folder.path(name) + "/index.json";
    try {
      const auto about = CheckpointIndex::parse(text_of(file), file).about;
      const auto& value = about.at("run").at("measures").at(measure);
      const double signed_value = lowest ? -value.get<double>() : value.get<double>();
      if (!best.empty() && signed_value <= best_value) continue;
      best = name;
      best_value = signed_value;
    } catch (const Error&) {                      // a damaged index is skipped
    } catch (const nlohmann::json::exception&) {  // the measure is missing or no number
    }
  }
  return best;
}
}  // namespace detail

/// Returns the checkpoint that loading `path` will choose, and its index; nothing if there is none. Tensors are not
/// read: if they are damaged, loading chooses another checkpoint.
[[nodiscard]] inline std::optional<std::pair<std::string, CheckpointIndex>> newest_checkpoint(
    const std::string& path) {
  for (const auto& folder : detail::state_places(path).places) {
    const auto file = folder + "/index.json";
    try {
      auto index = CheckpointIndex::parse(text_of(file), file);
      index.check_files(folder);
      return std::pair{folder, std::move(index)};
    } catch (const Error&) {  // loading reports the damage
    }
  }
  return std::nullopt;
}

}  // namespace dhp
