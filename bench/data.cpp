// data FOLDER TAR TFRECORD SECONDS: measures images per second of one thread's CPU time, from each source in turns: a
// plain loop of libjpeg-turbo that decodes the files of FOLDER at full size, and training batches of 224 x 224 from
// FOLDER, TAR and TFRECORD, augmented and normalized. bench/data.py makes these three sources and compares the rates.
#include <bench/program.hpp>
#include <dhp/data/find_shards.hpp>
#include <dhp/data/image_batcher.hpp>
#include <dhp/data/image_folder.hpp>
#include <dhp/data/jpeg.hpp>
#include <dhp/data/shard_images.hpp>

#include <iostream>
#include <numeric>

namespace {

constexpr int size = 224;
constexpr std::int64_t batch = 8;

/// Decodes files in libjpeg-turbo's own example loop; errors end the program.
class PlainLoop {
 public:
  explicit PlainLoop(const std::string& folder) : files_(dhp::files_below(folder)) {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
  }
  ~PlainLoop() { jpeg_destroy_decompress(&info_); }
  PlainLoop(const PlainLoop&) = delete;
  PlainLoop& operator=(const PlainLoop&) = delete;

  std::int64_t operator()() {
    for (std::int64_t image = 0; image < batch; ++image) {
      const auto bytes = dhp::read_file(files_[next_++ % files_.size()]);
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
      jpeg_start_decompress(&info_);
      const auto line_bytes = std::size_t{3} * info_.output_width;
      pixels_.resize(line_bytes * info_.output_height);
      rows_.clear();
      for (JDIMENSION y = 0; y < info_.output_height; ++y)
        rows_.push_back(pixels_.data() + y * line_bytes);
      while (info_.output_scanline < info_.output_height)
        jpeg_read_scanlines(&info_, &rows_[info_.output_scanline],
                            info_.output_height - info_.output_scanline);
      jpeg_finish_decompress(&info_);
    }
    return batch;
  }

 private:
  std::vector<std::string> files_;
  std::vector<unsigned char> pixels_;
  std::vector<JSAMPROW> rows_;
  std::size_t next_ = 0;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
};

/// Returns a function that makes training batches in the order of an epoch.
template <class D>
auto batches_of(D data) {
  return [batcher = dhp::ImageBatcher(
              std::move(data),
              {.height = size,
               .width = size,
               .mean = {0.485, 0.456, 0.406},
               .deviation = {0.229, 0.224, 0.225},
               .augment = dhp::AugmentOptions{.flip = true, .random_resized_crop = true}}),
          done = std::int64_t{0}]() mutable {
    std::vector<std::int64_t> indices;
    for (std::int64_t image = 0; image < batch; ++image) indices.push_back(done++ % batcher.size());
    (void)batcher.collate(indices, done / batcher.size());
    return batch;
  };
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc == 5, "bench_data FOLDER TAR TFRECORD SECONDS", [&] {
    const double seconds = std::strtod(argv[4], nullptr);
    const std::vector<dhp::Decoder> decoders{dhp::jpeg_decoder()};
    const dhp::DecodeOptions whole{}, reduced{.min_side = size * 3 / 2};
    const auto shards = [&](const char* path, const dhp::DecodeOptions& decode) {
      return dhp::ShardImages(dhp::find_shards(path).train, decoders, {.decode = decode});
    };
    std::vector<std::pair<std::string, std::function<std::int64_t()>>> sources;
    const auto plain = std::make_shared<PlainLoop>(argv[1]);
    sources.emplace_back("plain libjpeg-turbo", [plain] { return (*plain)(); });
    sources.emplace_back("folder",
                         batches_of(dhp::ImageFolder(argv[1], decoders, {.decode = reduced})));
    sources.emplace_back("tar", batches_of(shards(argv[2], reduced)));
    sources.emplace_back("TFRecord", batches_of(shards(argv[3], reduced)));
    sources.emplace_back("TFRecord, decoded at full size", batches_of(shards(argv[3], whole)));

    std::vector<double> used(sources.size()), images(sources.size());
    for (auto& [name, next] : sources) (void)next();
    while (std::accumulate(used.begin(), used.end(), 0.0) < seconds)
      for (std::size_t source = 0; source < sources.size(); ++source) {
        used[source] += bench::thread_seconds(
            [&] { images[source] += static_cast<double>(sources[source].second()); });
      }
    for (std::size_t source = 0; source < sources.size(); ++source)
      std::cout << sources[source].first << '\t' << images[source] / used[source] << '\n';

    // The mean change of a pixel, in 8-bit steps, when evaluated images are decoded at a smaller scale.
    const auto in_full = shards(argv[3], whole), in_part = shards(argv[3], reduced);
    double sum = 0, count = 0;
    for (std::int64_t index = 0; index < in_full.size(); ++index) {
      const auto one = dhp::fit(in_full.get(index).image, size, size);
      const auto other = dhp::fit(in_part.get(index).image, size, size);
      for (std::size_t at = 0; at < one.pixels.size(); ++at)
        sum += std::abs(one.pixels[at] - other.pixels[at]);
      count += static_cast<double>(one.pixels.size());
    }
    std::cout << "mean difference of a pixel\t" << sum / count << '\n';
  });
}
