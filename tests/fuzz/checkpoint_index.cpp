// libFuzzer: the reader accepts any bytes as an index, and writes this index unchanged, or refuses them with an Error.
#include <dhp/train/checkpoint_index.hpp>

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string path = "some/index.json";
  // A valid checksum line, without which all inputs would be refused.
  const auto text =
      input.starts_with("{") ? input : dhp::detail::checkpoint::first_line(input) + input;
  const bool of_all_shards = size % 2 == 0;
  try {
    const auto index = dhp::CheckpointIndex::parse(text, path, of_all_shards);
    const auto written = index.to_text();
    if (dhp::CheckpointIndex::parse(written, path, of_all_shards).to_text() != written)
      std::abort();
  } catch (const dhp::Error& error) {
    if (error.sentence().find(path) == std::string::npos) std::abort();
  }
  return 0;
}
