// Predictions are the same in every layout, in the order of the micro-batches. On any device.
#pragma once

#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>

namespace tests {

template <class Dev>
class PredictionCases {
 public:
  /// Scores of the vocabulary for all masked tokens. Two replicas have 3 + 2 micro-batches; the last has one sample.
  static void same_scores(const std::vector<Layout>& layouts, const RunSettings& settings = {}) {
    const auto serial = scores({}, settings);
    REQUIRE(serial.size() == micro_batches);
    CHECK(serial[0].shape()[0] > serial[4].shape()[0]);
    for (const auto& array : serial) CHECK(array.shape()[1] == vocabulary);
    CHECK(apart(serial[0], serial[1], false) > 0.1);  // a wrong order shows
    check_near(scores({}, settings, 0), serial, 0);   // dropout is off
    for (const auto& layout : layouts) {
      CAPTURE(to_text(layout));
      check_near(serial, scores(layout, settings), layout.mesh.tensor == 1 ? 0 : 1e-12);
    }
  }

  /// The mean over the rows of a sample. The model is embeddings and feed-forward layers, so rows do not interact.
  static void sample_means(const std::vector<Layout>& layouts) {
    const auto serial = means({});
    REQUIRE(serial.size() == micro_batches);
    CHECK(serial[4].shape() == Shape{1, 16});
    // The expected means are computed here from the same model's predictions for single rows.
    const auto rows = means({}, true);
    for (std::size_t at = 0; at < micro_batches; ++at) {
      const auto found = serial[at].template values<double>();
      const auto single = rows[at].template values<double>();
      for (std::size_t place = 0; place < found.size(); ++place) {
        double sum = 0;
        for (std::size_t row = 0; row < counted_rows; ++row)
          sum += single[(place / 16 * everything_length + row) * 16 + place % 16];
        CHECK(found[place] == Approx(sum / counted_rows).epsilon(1e-12));
      }
    }
    for (const auto& layout : layouts) {
      CAPTURE(to_text(layout));
      check_near(serial, means(layout), layout.mesh.tensor == 1 ? 0 : 1e-12);
    }
  }

 private:
  static constexpr std::size_t micro_batches = 5;
  static constexpr std::int64_t vocabulary = 65;  // a tensor axis of 2 has uneven parts
  static constexpr std::size_t counted_rows = 7;  // rows of a sample in its mean

  static MicroBatch<Dev> batch(Dev& dev, std::int64_t k) {
    return everything_batch(dev, 77, k, vocabulary, k == 4 ? 1 : everything_samples);
  }
  template <class MakeModel, class MakeBatch>
  static std::vector<HostArray> predicted(const Layout& layout, const RunSettings& settings,
                                          MakeModel make_model, MakeBatch make_batch) {
    std::vector<HostArray> found;
    on_each_rank<Dev>(
        layout, settings, make_model, [&](Dev& dev) { return make_batch(dev, 0); },
        [&](Dev& dev, Mesh<Dev>& mesh, auto&, auto& trainer) {
          const auto mine = assigned(mesh, static_cast<std::int64_t>(micro_batches),
                                     [&](std::int64_t k) { return make_batch(dev, k); });
          auto arrays = trainer.predict(mine);
          if (mesh.world().rank() == 0) found = std::move(arrays);
          else if (!arrays.empty()) FAIL("rank ", mesh.world().rank(), " has predictions, too");
        });
    return found;
  }
  static std::vector<HostArray> scores(const Layout& layout, const RunSettings& settings,
                                       double dropout = 0.5) {
    return predicted(
        layout, settings,
        [=](ModelBuilder<Dev>& build) {
          return everything(build, EverythingOptions{.vocabulary = vocabulary, .dropout = dropout});
        },
        batch);
  }
  static std::vector<HostArray> means(const Layout& layout, bool of_rows = false) {
    return predicted(
        layout, {},
        [](ModelBuilder<Dev>& build) {
          const auto config = everything_config({.blocks = 5, .vocabulary = vocabulary});
          Model<Dev> model;
          model.add("embeddings", examples::bert_embeddings(build, config));
          for (int block = 0; block < config.layers; ++block)
            model.add(concat("feed forward ", block),
                      examples::bert_feed_forward(build, concat("block", block), config));
          model.loss = SampleEmbeddings<Dev>();
          return model;
        },
        [&](Dev& dev, std::int64_t k) {
          auto result = batch(dev, k);
          const auto rows = result.samples * everything_length;
          const auto outputs = of_rows ? rows : result.samples;
          std::vector<float> weights(static_cast<std::size_t>(outputs * rows), 0);
          for (std::int64_t at = 0; at < outputs; ++at)
            for (std::int64_t row = 0; row < rows; ++row) {
              const bool counts =
                  of_rows ? at == row
                          : row / everything_length == at &&
                                row % everything_length < static_cast<std::int64_t>(counted_rows);
              // Ones are exact in every type. The division comes last.
              if (counts) weights[static_cast<std::size_t>(at * rows + row)] = 1;
            }
          auto pooling = Tensor<Dev>::from_host(dev, {outputs, rows}, weights);
          Tensor<Dev> wide(dev, DType::f64, {outputs, rows});
          cast(dev, pooling.view(), wide.mut());
          scale(dev, of_rows ? 1.0 : 1.0 / static_cast<double>(counted_rows), wide.mut());
          result.side.emplace_back("pooling", std::move(wide));
          return result;
        });
  }
  /// The largest difference, relative to the largest element; 1e9 if the shapes differ.
  static double apart(const HostArray& one, const HostArray& other, bool same_shape = true) {
    if (same_shape && one.shape() != other.shape()) return 1e9;
    const auto a = one.template values<double>(), b = other.template values<double>();
    double most = 0, largest = 0;
    for (std::size_t at = 0; at < std::min(a.size(), b.size()); ++at) {
      most = std::max(most, std::abs(a[at] - b[at]));
      largest = std::max(largest, std::abs(a[at]));
    }
    return most / largest;
  }
  static void check_near(const std::vector<HostArray>& serial, const std::vector<HostArray>& found,
                         double tolerance) {
    REQUIRE(found.size() == serial.size());
    for (std::size_t at = 0; at < serial.size(); ++at) {
      CAPTURE(at);
      CHECK(apart(serial[at], found[at]) <= tolerance);
    }
  }
};

}  // namespace tests
