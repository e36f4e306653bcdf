// .npy: written files can be read again, NumPy's files can be read, and the header is read strictly.
#include <dhp/data/npy.hpp>

#include "damage.hpp"
#include "npy_bytes.hpp"

namespace {

void parse(const dhp::Bytes& bytes, const std::string& name) {
  (void)dhp::detail::parse_npy(bytes, name);
}

template <class T>
void round_trip() {
  const std::vector<T> values{T(1), T(2), T(3), T(4), T(5), T(6)};
  CHECK(dhp::detail::parse_npy(npy_bytes<T>({2, 3}, values), "x") ==
        dhp::HostArray({2, 3}, values));
}

dhp::Bytes with_header(std::string dict, std::size_t data_bytes, int version = 1) {
  std::string text("\x93NUMPY", 6);
  text += static_cast<char>(version);
  text += '\0';
  dict += '\n';
  for (int byte = 0; byte < (version == 1 ? 2 : 4); ++byte)
    text += static_cast<char>(dict.size() >> (8 * byte) & 255);
  return bytes_of(text + dict + std::string(data_bytes, '\1'));
}

TEST_CASE("npy: arrays of every type are read as written") {
  round_trip<std::uint8_t>();
  round_trip<std::int32_t>();
  round_trip<std::int64_t>();
  round_trip<float>();
  round_trip<double>();
  CHECK(dhp::detail::parse_npy(npy_bytes<float>({}, std::vector<float>{2}), "x").shape().rank() ==
        0);
}

TEST_CASE("npy: headers in NumPy's forms are read") {
  const auto one = dhp::detail::parse_npy(
      with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }     ", 12), "x");
  CHECK(one.shape() == dhp::Shape{3});
  const auto two = dhp::detail::parse_npy(
      with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2), }", 4, 2), "x");
  CHECK(two.shape() == dhp::Shape{2, 2});
}

TEST_CASE("npy: damaged files are refused") {
  const auto good = npy_bytes<std::int32_t>({2, 2}, std::vector<std::int32_t>{1, 2, 3, 4});
  check_damage(parse, good, 400);
}

TEST_CASE("npy: errors say what is wrong and at which byte") {
  const auto says = [](const dhp::Bytes& bytes, const char* what) {
    CHECK_THROWS_WITH_AS(parse(bytes, "file"), Contains(what), dhp::Error);
    CHECK_THROWS_WITH_AS(parse(bytes, "file"), Contains("file, byte"), dhp::Error);
  };
  const std::string rest = "'fortran_order': False, 'shape': (2,)}";
  says(bytes_of("PK\3\4 is a zip"), "not an .npy file: it is a ZIP archive");
  says(bytes_of("neither"), "wrong magic");
  says(with_header("{'descr': '>f4', " + rest, 8),
       "'>f4' are not supported, only |u1 <i4 <i8 <f4 <f8; array.astype()");
  says(with_header("{'descr': [('a', '<f4')], " + rest, 8), "structured arrays");
  says(with_header("{'descr': '|O', " + rest, 8), "'|O' are not supported");
  says(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", 8),
       "ascontiguousarray");
  says(with_header("{'descr': '<f4', 'fortran_order': False}", 8), "not the dict");
  says(with_header("{'descr': '<f4', 'descr': '<f4', " + rest, 8), "unknown or repeated");
  says(with_header("{'x': '<f4', " + rest, 8), "unknown");
  says(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8), "bad extent");
  says(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8),
       "bad extent");
  says(with_header("{'descr': '<f4', 'fortran_order': False, "
                   "'shape': (4611686018427387904, 4611686018427387904)}",
                   8),
       "exceed the limit");
  says(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1)}", 4),
       "6 dims");
  says(
      with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775808)}", 0),
      "bad extent");
  says(with_header("{'descr': '<f4', " + rest, 9), "1 bytes more");
  says(with_header("{'descr': '<f4', " + rest, 7), "ends in the middle of the elements");
  says(with_header("{'descr': '<f4', " + rest, 8, 3), "version 3.0 is not supported");
  says(with_header("", 8), "was expected");
}

}  // namespace
