// Reads NumPy's .npy, versions 1 and 2: magic, header (a Python dict as text), elements. Supports u1, i4, i8, f4 and
// f8, little-endian, in C order.
#pragma once

#include <dhp/data/file.hpp>
#include <dhp/data/known_file.hpp>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace dhp {

namespace detail {
/// Parses the header's dict, which must have exactly the keys descr, fortran_order and shape.
class NpyHeader {
 public:
  NpyHeader(std::string_view text, const ByteCursor& at) : text_(text), at_(at) {
    expect('{');
    int seen = 0;
    while (!accept('}')) {
      const auto key = quoted();
      expect(':');
      if (key == "descr" && (seen & 1) == 0) {
        seen |= 1;
        if (accept('[')) reject("structured arrays are not supported: save one field");
        dtype = type_of(quoted());
      } else if (key == "fortran_order" && (seen & 2) == 0) {
        seen |= 2;
        if (word() != "False") reject("Fortran order is not supported: use np.ascontiguousarray()");
      } else if (key == "shape" && (seen & 4) == 0) {
        seen |= 4;
        read_shape();
      } else {
        reject("the key '", key, "' is unknown or repeated");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (place_ != text_.size() || seen != 7) reject("it is not the dict of an .npy header");
  }

  DType dtype = DType::u8;
  std::vector<std::uint64_t> extents;

 private:
  [[noreturn]] void reject(const auto&... parts) const {
    at_.reject("in the .npy header: ", parts...);
  }
  void skip_space() {
    while (place_ < text_.size() && (text_[place_] == ' ' || text_[place_] == '\n')) ++place_;
  }
  bool accept(char wanted) {
    skip_space();
    if (place_ == text_.size() || text_[place_] != wanted) return false;
    ++place_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) reject("'", wanted, "' was expected at its character ", place_);
  }
  std::string_view quoted() {
    expect('\'');
    const auto end = text_.find('\'', place_);
    if (end == text_.npos) reject("a quoted word does not end");
    const auto found = text_.substr(place_, end - place_);
    place_ = end + 1;
    return found;
  }
  std::string_view word() {
    skip_space();
    const auto begin = place_;
    while (place_ < text_.size() && (text_[place_] | 0x20) >= 'a' && (text_[place_] | 0x20) <= 'z')
      ++place_;
    return text_.substr(begin, place_ - begin);
  }
  void read_shape() {
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::uint64_t extent = 0;
      const auto* first = text_.data() + place_;
      const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), extent);
      if (error != std::errc{} || extent > (std::uint64_t{1} << 62))
        reject("a bad extent in shape");
      place_ += as_size(end - first);
      if (extents.size() == Shape::max_rank) reject("more than 6 dims");
      extents.push_back(extent);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
  }
  [[nodiscard]] DType type_of(std::string_view descr) const {
    if (descr == "|u1" || descr == "<u1") return DType::u8;
    if (descr == "<i4") return DType::i32;
    if (descr == "<i8") return DType::i64;
    if (descr == "<f4") return DType::f32;
    if (descr == "<f8") return DType::f64;
    reject("elements of type '", descr, "' are not supported, only |u1 <i4 <i8 <f4 <f8; ",
           "array.astype() makes them");
  }

  std::string_view text_;
  std::size_t place_ = 0;
  const ByteCursor& at_;
};

[[nodiscard]] inline HostArray parse_npy(std::span<const std::byte> bytes, const std::string& name,
                                         std::size_t limit_bytes = default_file_limit_bytes) {
  ByteCursor at(bytes, name);
  if (text_in(at.take(6, "the .npy magic")) != "\x93NUMPY") {
    const auto known = known_file(text_in(bytes));
    at.reject("not an .npy file: ", known.empty() ? "wrong magic" : "it is ", known);
  }
  const auto version = at.big_endian(2, "the version");
  if (version != 0x0100 && version != 0x0200)
    at.reject(".npy version ", version >> 8, ".", version & 255,
              " is not supported, only 1.0 and 2.0");
  const auto header_bytes = at.little_endian(version == 0x0100 ? 2 : 4, "the header length");
  const NpyHeader header(text_in(at.take(as_size(header_bytes), "the header")), at);
  return take_array(at, header.dtype, header.extents, limit_bytes);
}
}  // namespace detail

[[nodiscard]] inline HostArray load_npy(const std::string& path,
                                        std::size_t limit_bytes = default_file_limit_bytes) {
  return detail::parse_npy(read_file(path, limit_bytes), path, limit_bytes);
}

}  // namespace dhp
