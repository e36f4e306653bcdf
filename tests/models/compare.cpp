// dhp_compare says the same of two checkpoints in both orders, also where numbers are infinite.
#include <dhp/train/shard.hpp>
#include <examples/compare/checkpoints.hpp>
#include <tests/support/folder.hpp>
#include <tests/support/tensors.hpp>

namespace {

/// Writes a checkpoint of one tensor; returns its folder.
std::string saved(const std::string& folder, const std::vector<float>& values) {
  Cpu dev;
  std::filesystem::create_directory(folder);
  auto tensor = Tensor<Cpu>::from_host(dev, Shape{std::ssize(values)}, values);
  const HeldPiece<Cpu> held{
      .piece = {.name = "weight", .shape = tensor.shape(), .range = {0, tensor.count()}},
      .data = tensor.mut()};
  auto index = dhp::detail::write_shard(dev, folder, "shard.safetensors", {{held}});
  index.about["format"] = dhp::detail::checkpoint_format;
  replace_file(folder + "/index.json", index.to_text());
  return folder;
}

}  // namespace

TEST_CASE(
    "dhp_compare: the difference of two checkpoints is relative to the larger finite number") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  struct Case {
    std::vector<float> a, b;
    std::string says;
  };
  for (const auto& [a, b, says] :
       {Case{{0, 0}, {0, 1e-4F}, "by at most 1.0e+00 of its largest; more than rounding"},
        Case{{4, 1}, {4, 2}, "by at most 2.5e-01 of its largest; more than rounding"},
        Case{{infinite, 1}, {infinite, 2}, "by at most 5.0e-01 of its largest; more than rounding"},
        Case{{infinite, 1}, {1, 1}, "by at most inf of its largest; more than rounding"}}) {
    const Folder folder;
    const auto one = saved(folder / "a", a), other = saved(folder / "b", b);
    for (const auto& sentence : {examples::CheckpointComparison(one, other).sentence(),
                                 examples::CheckpointComparison(other, one).sentence()})
      CHECK_MESSAGE(sentence.find(says) != sentence.npos, sentence);
  }
}
