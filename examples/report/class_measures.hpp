// Measures of classification, from logits of labeled samples.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/host_array.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Counts samples by their true class and by the predicted class.
class ClassCounts {
 public:
  explicit ClassCounts(std::size_t classes) : found_(classes), there_(classes), right_(classes) {}

  /// Adds logits [samples, classes] of floats or doubles, and the labels of these samples.
  void add(const dhp::HostArray& logits, std::span<const std::int32_t> labels) {
    if (logits.dtype() == dhp::DType::f64) add(logits.values<double>(), labels);
    else add(logits.values<float>(), labels);
  }

  /// Returns the mean cross-entropy in nats.
  [[nodiscard]] double loss() const { return samples_ == 0 ? 0 : loss_ / samples_; }
  [[nodiscard]] double accuracy() const { return samples_ == 0 ? 0 : sum(right_) / samples_; }
  /// Returns the harmonic mean of precision and recall. With two classes it is that of the second class; with more it
  /// is the mean over all classes that occur or are predicted.
  [[nodiscard]] double f1() const {
    double total = 0;
    int counted = 0;
    for (std::size_t at = found_.size() == 2 ? 1 : 0; at < found_.size(); ++at) {
      const double both = found_[at] + there_[at];
      if (both == 0) continue;
      total += 2 * right_[at] / both;
      ++counted;
    }
    return counted == 0 ? 0 : total / counted;
  }
  /// Returns the correlation of predicted and true classes: 1 at best, 0 for guessing (Matthews 1975; for more than two
  /// classes Gorodkin 2004, equation 8).
  [[nodiscard]] double matthews() const {
    double both = 0, of_found = 0, of_there = 0;
    for (std::size_t at = 0; at < found_.size(); ++at) {
      both += found_[at] * there_[at];
      of_found += found_[at] * found_[at];
      of_there += there_[at] * there_[at];
    }
    const double squares = samples_ * samples_;
    const double scale = std::sqrt((squares - of_found) * (squares - of_there));
    return scale == 0 ? 0 : (sum(right_) * samples_ - both) / scale;
  }

  /// Returns all measures, with the names in the trainers' reports.
  [[nodiscard]] std::vector<std::pair<std::string, double>> measures() const {
    return {{"loss", loss()}, {"accuracy", accuracy()}, {"f1", f1()}, {"matthews", matthews()}};
  }

 private:
  template <class T>
  void add(std::span<const T> logits, std::span<const std::int32_t> labels) {
    const auto classes = found_.size();
    dhp::check(logits.size() == labels.size() * classes, "there are ", logits.size(),
               " logits for ", labels.size(), " samples of ", classes, " classes");
    for (std::size_t at = 0; at < labels.size(); ++at) {
      const auto row = logits.subspan(at * classes, classes);
      const auto label = static_cast<std::size_t>(labels[at]);
      const auto best =
          static_cast<std::size_t>(std::max_element(row.begin(), row.end()) - row.begin());
      const auto most = static_cast<double>(row[best]);
      double exponentials = 0;
      for (const auto value : row) exponentials += std::exp(static_cast<double>(value) - most);
      loss_ += most + std::log(exponentials) - static_cast<double>(row[label]);
      ++found_[best];
      ++there_[label];
      right_[label] += best == label ? 1 : 0;
      ++samples_;
    }
  }
  [[nodiscard]] static double sum(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
  }

  std::vector<double> found_, there_, right_;  // samples by class: predicted, true, correct
  double samples_ = 0;
  double loss_ = 0;
};

}  // namespace examples
