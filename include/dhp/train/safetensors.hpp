// safetensors: 8 bytes of header length, a JSON header, the tensors' bytes. The reader trusts nothing: it checks lengths
// before it allocates; offsets must fit shape and type, without gaps and overlaps. Needs nlohmann/json.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/core/shape.hpp>
#include <dhp/core/types.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The place of a tensor in a file. Scalars have an empty shape.
struct StoredTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t first = 0;  ///< byte range in the data section
  std::uint64_t last = 0;
};

namespace safetensors {

inline constexpr std::pair<DType, const char*> names[] = {
    {DType::f64, "F64"}, {DType::f32, "F32"}, {DType::bf16, "BF16"}, {DType::f16, "F16"},
    {DType::i64, "I64"}, {DType::i32, "I32"}, {DType::u8, "U8"}};

inline const char* name_of(DType type) {
  return std::find_if(std::begin(names), std::end(names),
                      [&](const auto& entry) { return entry.first == type; })
      ->second;
}

}  // namespace safetensors

/// An open file; tensors are read on demand.
class SafeTensors {
 public:
  explicit SafeTensors(const std::string& path) : path_(path), file_(path, O_RDONLY) {
    constexpr std::uint64_t longest_header = 100'000'000;
    const auto size = file_.size();
    check(size >= 8, path, " is no safetensors file: it has ", size, " bytes, fewer than 8");
    std::uint64_t length = 0;
    file_.read(0, std::as_writable_bytes(std::span(&length, 1)));
    check(length <= longest_header && length <= size - 8, path,
          " is no safetensors file: its header of ", length, " bytes does not fit ", size,
          " bytes");
    std::string header(static_cast<std::size_t>(length), '\0');
    file_.read(8, std::as_writable_bytes(std::span(header.data(), header.size())));
    check(!header.empty() && header[0] == '{', path,
          " is no safetensors file: its header does not "
          "begin with '{' at byte 8");
    data_ = 8 + length;
    parse(header, size - data_);
  }

  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const StoredTensor* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] std::vector<std::byte> read(const StoredTensor& tensor) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.last - tensor.first));
    file_.read(data_ + tensor.first, bytes);
    return bytes;
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// An entry of "__metadata__"; empty if there is none.
  [[nodiscard]] std::string note(const std::string& key) const {
    const auto found = notes_.find(key);
    return found == notes_.end() ? "" : found->second;
  }

 private:
  void parse(const std::string& text, std::uint64_t data_bytes) {
    std::vector<std::set<std::string>> keys;  // by depth: unlike JSON, we forbid repeated names
    std::string twice;
    const auto callback = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
      if (event == nlohmann::json::parse_event_t::object_start) keys.emplace_back();
      if (event == nlohmann::json::parse_event_t::object_end) keys.pop_back();
      if (event == nlohmann::json::parse_event_t::key &&
          !keys.back().insert(value.get<std::string>()).second)
        twice = value.get<std::string>();
      return true;
    };
    const auto json = nlohmann::json::parse(text, callback, false);
    check(json.is_object(), path_, " is damaged: its header is no JSON object");
    check(twice.empty(), path_, " is damaged: its header has \"", twice, "\" twice");
    for (const auto& [name, value] : json.items())
      if (name != "__metadata__") tensors_[name] = parse_tensor(name, value);
      else if (value.is_object())
        for (const auto& [key, note] : value.items())
          if (note.is_string()) notes_[key] = note.get<std::string>();
    check_ranges(data_bytes);
  }

  [[nodiscard]] StoredTensor parse_tensor(const std::string& name,
                                          const nlohmann::json& value) const {
    const auto damaged = [&](const char* what) {
      fail("", path_, " is damaged: tensor ", name, " has ", what);
    };
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      damaged("no dtype, shape and data_offsets");
    StoredTensor tensor;
    const auto& type = value["dtype"];
    bool known = false;
    for (const auto& [dtype, dtype_name] : safetensors::names)
      if (type.is_string() && type.get<std::string>() == dtype_name) {
        tensor.dtype = dtype;
        known = true;
      }
    if (!known) damaged("a dtype that dhp does not know");
    const auto& shape = value["shape"];
    const auto& offsets = value["data_offsets"];
    if (!shape.is_array() || shape.size() > 8)
      damaged("a shape that is no list of up to 8 numbers");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      damaged("data_offsets that are not two numbers");
    std::uint64_t bytes = size_of(tensor.dtype);
    for (const auto& extent : shape) {
      if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() >= (std::uint64_t{1} << 62))
        damaged("a shape that is no list of up to 8 numbers");
      tensor.shape.push_back(extent.get<std::int64_t>());
      if (__builtin_mul_overflow(bytes, extent.get<std::uint64_t>(), &bytes))
        damaged("a shape beyond all memory");
    }
    tensor.first = offsets[0].get<std::uint64_t>();
    tensor.last = offsets[1].get<std::uint64_t>();
    if (tensor.last < tensor.first || tensor.last - tensor.first != bytes)
      damaged("data_offsets that do not fit its shape");
    return tensor;
  }

  void check_ranges(std::uint64_t data_bytes) const {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& [name, tensor] : tensors_) ranges.emplace_back(tensor.first, tensor.last);
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
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> notes_;
};

/// Collects tensors and writes them as one file.
class SafeTensorsWriter {
 public:
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           std::vector<std::byte> bytes) {
    const auto first = end_;
    end_ += bytes.size();
    const bool fresh =
        header_
            .emplace(name, nlohmann::ordered_json{{"dtype", safetensors::name_of(dtype)},
                                                  {"shape", std::move(shape)},
                                                  {"data_offsets", {first, end_}}})
            .second;
    check(fresh, "two tensors have the name ", name);
    data_.push_back(std::move(bytes));
  }

  /// An entry of "__metadata__".
  void note(const std::string& key, const std::string& value) {
    header_["__metadata__"][key] = value;
  }

  void write(OpenFile& file) const {
    auto header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');  // data begin at a multiple of 8
    const std::uint64_t length = header.size();
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(header);
    for (const auto& bytes : data_) file.write(bytes);
  }
  void write(const std::string& path) const {
    replace_file(path, [&](OpenFile& file) { write(file); });
  }

 private:
  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::vector<std::vector<std::byte>> data_;
  std::uint64_t end_ = 0;
};

}  // namespace dhp
