// safetensors: round trips, and every rule that the reader enforces.
#include <dhp/train/safetensors.hpp>
#include <tests/support/folder.hpp>

#include <ctime>

namespace {

struct File : tests::Folder {
  const std::string path = *this / "file.safetensors";
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
};

std::string with_header(const std::string& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return bytes + header + std::string(data, '\x01');
}

/// The error for these bytes, or "accepted".
std::string refusal(const std::string& bytes) {
  const File file;
  file.write(bytes);
  try {
    const SafeTensors tensors(file.path);
    for (const auto& [name, tensor] : tensors.tensors()) (void)tensors.read(tensor);
  } catch (const Error& error) {
    CHECK(has(error.sentence(), file.path));
    return error.sentence();
  }
  return "accepted";
}

bool refuses(const std::string& header, std::size_t data, const std::string& because) {
  return has(refusal(with_header(header, data)), because);
}

}  // namespace

TEST_CASE("safetensors: tensors are read as written, also scalars and empty ones") {
  const File file;
  SafeTensorsWriter writer;
  const std::vector<std::byte> six(12, std::byte{7});
  writer.add("matrix", DType::bf16, {2, 3}, six);
  writer.add("scalar", DType::i64, {}, std::vector<std::byte>(8, std::byte{1}));
  writer.add("empty", DType::f32, {0, 4}, std::vector<std::byte>());
  CHECK_THROWS_AS(writer.add("empty", DType::f32, {0}, std::vector<std::byte>()), Error);
  writer.note("tied", "matrix");  // as Python's save_model() notes a tensor that shares memory
  writer.note("format", "pt");
  writer.write(file.path);
  const SafeTensors read(file.path);
  REQUIRE(read.tensors().size() == 4);
  REQUIRE(read.find("tied") != nullptr);
  CHECK(read.read(*read.find("tied")) == six);
  CHECK(read.find("matrix")->shape == std::vector<std::int64_t>{2, 3});
  CHECK(read.find("matrix")->dtype == DType::bf16);
  CHECK(read.read(*read.find("matrix")) == six);
  CHECK(read.find("scalar")->shape.empty());
  CHECK(read.read(*read.find("empty")).empty());
  CHECK(read.find("nothing") == nullptr);
}

TEST_CASE("safetensors: each rule of the format is checked") {
  CHECK(refusal(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4)) ==
        "accepted");
  CHECK(has(refusal("1234567"), "fewer than 8"));
  CHECK(has(refusal(std::string(8, '\xff')), "does not fit"));
  CHECK(refuses("[1]", 0, "does not begin with '{'"));
  CHECK(refuses("{\"a\":", 0, "no JSON object"));
  CHECK(refuses(std::string("{}\0", 3), 0, "no JSON object"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                4, "twice"));
  // The reader skips tensors of types that dhp does not compute in.
  CHECK(refusal(with_header(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4)) ==
        "accepted");
  CHECK(refusal(with_header(R"({"__metadata__":{"a":"b"}}   )", 0)) == "accepted");
  CHECK(refusal(with_header(R"({"__metadata__":null,"\u0061":{"data_offsets":[0,4],"shape":[1],)"
                            R"("more":[{"x":null},-1,2e-3,true,"\"}\u00e9"],"dtype":"F32"}})",
                            4)) == "accepted");
  CHECK(refuses(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4, "type F33"));
  CHECK(refuses(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,4]}})", 4, "do not fit"));
  CHECK(refuses(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "do not fit"));
  CHECK(refuses(R"({"__metadata__":{"a":1}})", 0, "a of its __metadata__ is no text"));
  CHECK(refuses(R"({"__metadata__":[]})", 0, "__metadata__ is no object"));
  CHECK(has(refusal("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "do not fit"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[4611686018427387903,4],"data_offsets":[0,4]}})", 4,
                "beyond all memory"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "no tensor"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "5 for them"));
  CHECK(refuses(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
                6, "in two"));
  CHECK(refuses(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "no dtype"));
  CHECK(refuses(R"({"a":7})", 0, "no dtype"));
}

TEST_CASE("safetensors: names may repeat in other objects; many names take little time") {
  std::string twice;
  (void)detail::parse_strictly(R"({"a":{"x":1},"b":[{"x":{"a":2}},{"x":3}],"c":4})", twice);
  CHECK(twice.empty());
  (void)detail::parse_strictly(R"({"a":{"x":1},"b":[{"y":{"a":2},"y":3}]})", twice);
  CHECK(twice == "y");
  std::string header = "{";
  for (int number = 0; number < 50'000; ++number)
    header += concat(number == 0 ? "" : ",", "\"", number,
                     R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  const auto began = std::clock();  // CPU time, which other work hardly changes
  CHECK(refusal(with_header(header + "}", 0)) == "accepted");
  CHECK(std::clock() - began < 30 * CLOCKS_PER_SEC);
}

TEST_CASE("safetensors: truncated files are refused, changed bytes are refused or read") {
  const File file;
  SafeTensorsWriter writer;
  writer.add("a", DType::f32, {2}, std::vector<std::byte>(8, std::byte{3}));
  writer.add("b", DType::u8, {3}, std::vector<std::byte>(3, std::byte{4}));
  writer.write(file.path);
  const auto whole = text_of(file.path);
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK(refusal(whole.substr(0, size)) != "accepted");
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    auto bytes = whole;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    (void)refusal(bytes);
  }
}
