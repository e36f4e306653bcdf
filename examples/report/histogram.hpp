// How the values of a tensor are spread: counts in half octaves, for curves.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace examples {

/// What is not finite is not counted.
class Histogram {
 public:
  void add(double value) {
    if (!std::isfinite(value)) return;
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
    sum_ += value;
    squares_ += value * value;
    ++count_;
    ++buckets_[bucket_of(value)];
  }
  /// Adds what another part of the same tensor has.
  void add(const Histogram& more) {
    least_ = std::min(least_, more.least_);
    most_ = std::max(most_, more.most_);
    sum_ += more.sum_;
    squares_ += more.squares_;
    count_ += more.count_;
    for (const auto& [bucket, count] : more.buckets_) buckets_[bucket] += count;
  }

  [[nodiscard]] double least() const { return least_; }
  [[nodiscard]] double most() const { return most_; }
  [[nodiscard]] double count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }
  [[nodiscard]] double sum_of_squares() const { return squares_; }
  /// Counts by the upper limits of their buckets, ascending. The lower limit is that of the bucket before.
  [[nodiscard]] std::map<double, double> counts() const {
    std::map<double, double> made;
    for (const auto& [bucket, count] : buckets_) {
      made.try_emplace(limit_of(bucket - 1), 0);
      made[limit_of(bucket)] = count;
    }
    return made;
  }

  [[nodiscard]] nlohmann::json to_json() const {
    auto buckets = nlohmann::json::array();
    for (const auto& bucket : buckets_) buckets.push_back(bucket);
    return {least_, most_, count_, sum_, squares_, buckets};
  }
  [[nodiscard]] static Histogram of_json(const nlohmann::json& json) {
    Histogram made;
    made.least_ = json[0];
    made.most_ = json[1];
    made.count_ = json[2];
    made.sum_ = json[3];
    made.squares_ = json[4];
    for (const auto& bucket : json[5]) made.buckets_[bucket[0]] = bucket[1];
    return made;
  }

 private:
  static constexpr int smallest = -80;  // half octaves: 2^-40

  /// 0: about zero; k > 0: from 2^((smallest + k - 1) / 2) on; -k: the same below zero.
  [[nodiscard]] static int bucket_of(double value) {
    if (value == 0) return 0;
    const int octaves = static_cast<int>(std::floor(2 * std::log2(std::abs(value))));
    const int bucket = std::max(octaves - smallest + 1, 0);
    return value > 0 ? bucket : -bucket;
  }
  [[nodiscard]] static double limit_of(int bucket) {
    if (bucket < 0) return -std::exp2((smallest - bucket - 1) / 2.0);
    return std::exp2((smallest + bucket) / 2.0);
  }

  double least_ = std::numeric_limits<double>::max();
  double most_ = std::numeric_limits<double>::lowest();
  double count_ = 0, sum_ = 0, squares_ = 0;
  std::map<int, double> buckets_;
};

}  // namespace examples
