// A dataset of generated images with learnable labels, a coarse pattern per class plus noise, for tests, first trials
// and benchmarks.
#pragma once

#include <dhp/data/image.hpp>
#include <dhp/data/sample_random.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace examples {

struct SyntheticOptions {
  std::int64_t samples = 1024;
  int classes = 10;
  int height = 32;
  int width = 32;
  int channels = 3;
  double noise = 0.5;  ///< share of noise in [0, 1]; the rest is the pattern
  std::uint64_t seed = 0;
};

/// Sample i has class i % classes.
class SyntheticImages {
 public:
  using Sample = dhp::LabeledImage;

  explicit SyntheticImages(const SyntheticOptions& options) : options_(options) {
    const auto& o = options_;
    std::vector<std::uint8_t> cells;
    for (int label = 0; label < o.classes; ++label) {
      dhp::SampleRandom random(o.seed, -1, label, dhp::DataUse::synthesize);
      for (int cell = 0; cell < grid * grid * o.channels; ++cell)
        cells.push_back(static_cast<std::uint8_t>(random.below(256)));
    }
    cells_ = std::make_shared<const std::vector<std::uint8_t>>(std::move(cells));
  }

  [[nodiscard]] std::int64_t size() const { return options_.samples; }
  [[nodiscard]] int classes() const { return options_.classes; }
  [[nodiscard]] Sample get(std::int64_t index) const {
    dhp::detail::check_sample_index(index, size());
    const auto& o = options_;
    const auto label = static_cast<int>(index % o.classes);
    const int noise = static_cast<int>(o.noise * 256);
    const dhp::RandomStream stream = dhp::detail::data_stream(
        o.seed + dhp::mix(static_cast<std::uint64_t>(index)), 0, dhp::DataUse::synthesize);
    Sample result{dhp::Image::blank(o.height, o.width, o.channels), label};
    auto* pixel = result.image.pixels.data();
    std::uint64_t drawn = 0;
    std::array<std::uint32_t, 4> words{};
    for (int y = 0; y < o.height; ++y)
      for (int x = 0; x < o.width; ++x)
        for (int c = 0; c < o.channels; ++c) {
          if (drawn % 16 == 0) words = stream.block(drawn / 16);
          const int random = static_cast<int>(words[drawn / 4 % 4] >> (8 * (drawn % 4)) & 255);
          ++drawn;
          *pixel++ = static_cast<std::uint8_t>(
              (cell(label, y, x, c) * (256 - noise) + random * noise) >> 8);
        }
    return result;
  }

 private:
  static constexpr int grid = 4;  // cells per side of a pattern

  [[nodiscard]] int cell(int label, int y, int x, int c) const {
    const int row = y * grid / options_.height;
    const int column = x * grid / options_.width;
    const int at = ((label * grid + row) * grid + column) * options_.channels + c;
    return (*cells_)[static_cast<std::size_t>(at)];
  }

  SyntheticOptions options_;
  std::shared_ptr<const std::vector<std::uint8_t>> cells_;
};

}  // namespace examples
