// Chooses a token from a decoder's scores: the likeliest, or a random one (Holtzman et al. 2020, "top-p").
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace examples {

struct Sampling {
  double temperature = 0;  ///< divides the scores; 0: the likeliest token is taken
  std::int64_t top_k = 0;  ///< number of likeliest tokens to choose from; 0: all
  double top_p = 1;        ///< chooses from the likeliest tokens with this total share
};

/// Returns a token. drawn: uniform in [0, 1). Of equal scores the token of the lower id comes first.
[[nodiscard]] inline std::int32_t chosen_token(std::span<const double> scores,
                                               const Sampling& sampling, double drawn) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](std::int32_t token) { return scores[static_cast<std::size_t>(token)]; };
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return score(a) != score(b) ? score(a) > score(b) : a < b;
  };
  dhp::check(std::none_of(scores.begin(), scores.end(), [](double x) { return std::isnan(x); }),
             "a score of the model is not a number");  // NaN cannot be sorted
  const auto best = *std::min_element(order.begin(), order.end(), before);
  dhp::check(std::isfinite(score(best)), "the model's scores are not finite");
  if (sampling.temperature == 0) return best;
  std::sort(order.begin(), order.end(), before);
  if (sampling.top_k > 0)
    order.resize(std::min(order.size(), static_cast<std::size_t>(sampling.top_k)));
  std::vector<double> upto;  // cumulative shares
  double sum = 0;
  for (const auto token : order)
    upto.push_back(sum += std::exp((score(token) - score(best)) / sampling.temperature));
  std::size_t kept = 1;
  while (kept < order.size() && upto[kept - 1] < sampling.top_p * sum) ++kept;
  const auto found = std::upper_bound(
      upto.begin(), upto.begin() + static_cast<std::ptrdiff_t>(kept), drawn * upto[kept - 1]);
  return order[std::min(static_cast<std::size_t>(found - upto.begin()), kept - 1)];
}

}  // namespace examples
