// libFuzzer: the reader accepts any bytes as a safetensors file, or refuses them with an Error.
#include <dhp/train/safetensors.hpp>

#include <sys/mman.h>

#include <cstdlib>

namespace {

/// Makes the file from the input: the input itself or, if it starts with {, this header with its length, and some data.
std::string file_of(const std::string& input) {
  if (input.size() < 2 || input[0] != '{') return input;
  const auto data_bytes = static_cast<unsigned char>(input.back());
  const auto header = input.substr(0, input.size() - 1);
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(data_bytes, 'd');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int fd = ::memfd_create("input", 0);
  static const auto path = dhp::concat("/proc/self/fd/", fd);
  const auto bytes = file_of({reinterpret_cast<const char*>(data), size});
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  try {
    const dhp::SafeTensors file(path);
    std::uint64_t read = 0;
    for (const auto& [name, tensor] : file.tensors()) read += file.read(tensor).size();
    if (read > bytes.size()) std::abort();
  } catch (const dhp::Error& error) {
    if (error.sentence().find(path) == std::string::npos) std::abort();
  }
  return 0;
}
