// A safetensors file: 8 bytes with the header's length, a JSON header, the tensors' bytes. The reader trusts nothing:
// it checks lengths before allocating, and offsets for shape, type, gaps and overlaps. Needs nlohmann/json.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/core/shape.hpp>
#include <dhp/core/types.hpp>
#include <dhp/data/known_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
/// A tensor's type, shape and place in a file; a scalar has an empty shape.
struct StoredTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t first = 0;  ///< [first, last): the tensor's bytes in the data section
  std::uint64_t last = 0;
};

/// Parses JSON; returns a discarded value for other text. If an object has a name twice, sets `twice` to this name.
[[nodiscard]] inline nlohmann::json parse_strictly(const std::string& text, std::string& twice) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // the names of each enclosing object; none of arrays
  const auto look = [&](int depth, Event event, nlohmann::json& value) {
    if (event != Event::object_start && event != Event::key) return false;
    keys.resize(as_size(depth));  // objects inside have ended
    if (event == Event::object_start) keys.emplace_back();
    else if (!keys.back().insert(value.get<std::string>()).second) twice = value.get<std::string>();
    return false;  // the parser's time would be quadratic in the number of kept objects
  };
  [[maybe_unused]] const auto nothing = nlohmann::json::parse(text, look, false);
  return nlohmann::json::parse(text, nullptr, false);
}
}  // namespace detail

namespace detail::safetensors {

inline constexpr std::pair<DType, const char*> names[] = {
    {DType::f64, "F64"}, {DType::f32, "F32"}, {DType::bf16, "BF16"}, {DType::f16, "F16"},
    {DType::i64, "I64"}, {DType::i32, "I32"}, {DType::u8, "U8"}};

inline const char* name_of(DType type) {
  return std::find_if(std::begin(names), std::end(names),
                      [&](const auto& entry) { return entry.first == type; })
      ->second;
}
/// Types that dhp cannot compute in, with the bits of an element.
inline const std::map<std::string, std::uint64_t> other_bits{
    {"BOOL", 8},        {"I8", 8},          {"U16", 16},    {"I16", 16},    {"U32", 32},
    {"U64", 64},        {"C64", 64},        {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

/// Returns nothing for a type that dhp cannot compute in.
[[nodiscard]] inline std::optional<DType> type_of(const std::string& name) {
  for (const auto& [type, known] : names)
    if (name == known) return type;
  return {};
}

}  // namespace detail::safetensors

class SafeTensors {
 public:
  /// shared: the notes on shared memory of a model in several files, {"name": "name of the stored tensor"}.
  explicit SafeTensors(const std::string& path, const nlohmann::json& shared = {})
      : path_(path), file_(path, O_RDONLY) {
    constexpr std::uint64_t longest_header = 100'000'000;
    const auto size = file_.size();
    const auto head = file_.text(0, detail::as_size(std::min<std::uint64_t>(size, 64)));
    const bool begins = head.size() > 8 && head[8] == '{';  // the first 8 bytes are any number
    const auto known = detail::known_file(head);
    check(begins || known.empty(), path, " is no safetensors file: it is ", known);
    check(size >= 8, path, " is no safetensors file: it has ", size, " bytes, fewer than 8");
    std::uint64_t length = 0;
    file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
    check(length <= longest_header && length <= size - 8, path,
          " is no safetensors file: its header of ", length, " bytes does not fit ", size,
          " bytes");
    const auto header = file_.text(8, detail::as_size(length));
    check(!header.empty() && header[0] == '{', path,
          " is no safetensors file: its header does not begin with '{' at byte 8");
    data_ = 8 + length;
    parse(header, size - data_);
    name_shared(shared);
  }

  [[nodiscard]] const std::map<std::string, detail::StoredTensor>& tensors() const {
    return tensors_;
  }
  [[nodiscard]] const detail::StoredTensor* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::vector<std::byte> read(const detail::StoredTensor& tensor) const {
    std::vector<std::byte> bytes(detail::as_size(tensor.last - tensor.first));
    file_.read(data_ + tensor.first, bytes);
    return bytes;
  }
  /// Names and types of the tensors whose types dhp cannot compute in. Such tensors are no damage.
  [[nodiscard]] const std::map<std::string, std::string>& skipped() const { return skipped_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  void parse(const std::string& text, std::uint64_t data_bytes) {
    std::string twice;
    const auto json = detail::parse_strictly(text, twice);
    check(json.is_object() && text.find('\0') == text.npos, path_,
          " is damaged: its header is no JSON object");
    check(twice.empty(), path_, " is damaged: its header has \"", twice, "\" twice");
    std::vector<Bytes> ranges;
    for (const auto& [name, value] : json.items()) {
      if (name != "__metadata__") {
        ranges.push_back(parse_tensor(name, value));
        continue;
      }
      check(value.is_object() || value.is_null(), path_,
            " is damaged: its __metadata__ is no object");
      for (const auto& [key, note] : value.items())
        check(note.is_string(), path_, " is damaged: ", key, " of its __metadata__ is no text");
    }
    check_ranges(std::move(ranges), data_bytes);
    name_shared(json.value("__metadata__", nlohmann::json()));
  }
  // Of tensors that share memory, Python's save_model() writes one; its notes give the names of the others.
  void name_shared(const nlohmann::json& notes) {
    for (const auto& [name, note] : notes.items())
      if (const auto* const same = note.is_string() ? find(note) : nullptr)
        tensors_.try_emplace(name, *same);
  }

  using Bytes = std::pair<std::uint64_t, std::uint64_t>;

  /// Adds a tensor to tensors_, or to skipped_ if dhp cannot compute in its type. Returns the tensor's range of bytes.
  Bytes parse_tensor(const std::string& name, const nlohmann::json& value) {
    const auto damaged = [&](const char* what) {
      fail(path_, " is damaged: tensor ", name, " has ", what);
    };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      damaged("no dtype, shape and data_offsets");
    detail::StoredTensor tensor;
    if (!value["dtype"].is_string()) damaged("a dtype that is no text");
    const auto type = value["dtype"].get<std::string>();
    const auto dtype = detail::safetensors::type_of(type);
    const auto other = detail::safetensors::other_bits.find(type);
    if (!dtype && other == detail::safetensors::other_bits.end())
      damaged(concat("the type ", type, ", which the format does not know").c_str());
    tensor.dtype = dtype.value_or(DType::u8);
    const auto& shape = value["shape"];
    const auto& offsets = value["data_offsets"];
    if (!shape.is_array() || shape.size() > 8)
      damaged("a shape that is no list of up to 8 numbers");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      damaged("data_offsets that are not two numbers");
    std::uint64_t bits = dtype ? 8 * size_of(*dtype) : other->second;
    for (const auto& extent : shape) {
      if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() >= (std::uint64_t{1} << 62))
        damaged("a shape that is no list of up to 8 numbers");
      tensor.shape.push_back(extent.get<std::int64_t>());
      if (__builtin_mul_overflow(bits, extent.get<std::uint64_t>(), &bits))
        damaged("a shape beyond all memory");
    }
    tensor.first = offsets[0].get<std::uint64_t>();
    tensor.last = offsets[1].get<std::uint64_t>();
    if (tensor.last < tensor.first || tensor.last - tensor.first != bits / 8 || bits % 8 != 0)
      damaged("data_offsets that do not fit its shape");
    if (dtype) tensors_[name] = tensor;
    else skipped_[name] = type;
    return {tensor.first, tensor.last};
  }

  void check_ranges(std::vector<Bytes> ranges, std::uint64_t data_bytes) const {
    std::sort(ranges.begin(), ranges.end());
    std::uint64_t end = 0;
    for (const auto& [first, last] : ranges) {
      check(first == end, path_, " is damaged: byte ", end,
            " of its data is in no tensor or in two");
      end = last;
    }
    check(end == data_bytes, path_, " is damaged: its tensors have ", end, " bytes, the file has ",
          data_bytes, " for them");
  }

  std::string path_;
  OpenFile file_;
  std::uint64_t data_ = 0;
  std::map<std::string, detail::StoredTensor> tensors_;
  std::map<std::string, std::string> skipped_;
};

/// Writes a file of tensors without holding all of them in memory.
class SafeTensorsWriter {
 public:
  /// Adds a tensor; write(OpenFile&) is called later to write its bytes. Returns their offset after the header.
  std::uint64_t add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
                    std::function<void(OpenFile&)> write) {
    const auto first = end_;
    end_ += size_of(dtype);
    for (const auto extent : shape)
      end_ = first + (end_ - first) * static_cast<std::uint64_t>(extent);
    const bool fresh =
        header_
            .emplace(name, nlohmann::ordered_json{{"dtype", detail::safetensors::name_of(dtype)},
                                                  {"shape", std::move(shape)},
                                                  {"data_offsets", {first, end_}}})
            .second;
    check(fresh, "two tensors have the name ", name);
    data_.push_back({std::move(write), end_});
    return first;
  }
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::vector<std::byte> bytes) {
    add(name, dtype, std::move(shape),
        [bytes = std::move(bytes)](OpenFile& file) { file.write(bytes); });
  }
  /// Adds an entry to "__metadata__".
  void note(const std::string& key, const std::string& value) {
    header_["__metadata__"][key] = value;
  }

  /// Returns everything before the data: the header's length and the header.
  [[nodiscard]] std::string head() const {
    auto header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');  // data begin at a multiple of 8
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
  }
  void write(OpenFile& file) const {
    const auto before = head();
    file.write(before);
    for (const auto& [write, last] : data_) {
      write(file);
      check(file.size() == before.size() + last, "a tensor gave ", file.size(),
            " bytes to a file that should have ", before.size() + last, " after it");
    }
  }
  void write(const std::string& path) const {
    replace_file(path, [&](OpenFile& file) { write(file); });
  }

 private:
  struct Source {
    std::function<void(OpenFile&)> write;
    std::uint64_t last;  // end of the tensor's bytes, counted from the header's end
  };
  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::vector<Source> data_;
  std::uint64_t end_ = 0;
};

}  // namespace dhp
