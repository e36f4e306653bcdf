// Ranks that are processes compare their options and their data before they train together: with different ones they
// would train nonsense or wait for each other forever.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/rank_list.hpp>
#include <dhp/core/crc32c.hpp>
#include <dhp/core/hash.hpp>

#include "../run/training.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace examples {

/// Facts that must be the same on all ranks.
struct Common {
  std::string facts;    ///< JSON: names, and the wording of their values
  std::string has;      ///< words between a rank and its values, such as "started with"
  std::string way_out;  ///< remedy for a difference
};

/// Returns an error's sentence about all ranks with the same text as rank `first`, which differs from `reference`'s.
[[nodiscard]] inline std::string disagreement(const std::vector<std::string>& texts,
                                              std::size_t reference, std::size_t first,
                                              const Common& common) {
  std::set<int> ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank] == texts[first]) ranks.insert(static_cast<int>(rank));
  const auto theirs = nlohmann::ordered_json::parse(texts[first], nullptr, false);
  const auto others = nlohmann::ordered_json::parse(texts[reference], nullptr, false);
  if (theirs.is_discarded() || others.is_discarded())
    return dhp::concat(dhp::rank_list(ranks), " runs another program than rank ", reference, "; ",
                       common.way_out);
  std::string a, b;
  int differing = 0;
  constexpr int named = 3;
  for (const auto& [name, value] : theirs.items()) {
    const auto other = others.value(name, "no " + name);
    if (value == other || ++differing > named) continue;
    a += (a.empty() ? "" : ", ") + value.template get<std::string>();
    b += (b.empty() ? "" : ", ") + other;
  }
  return dhp::concat(dhp::rank_list(ranks), " ", common.has, " ", a, ", and rank ", reference,
                     " with ", b, differing > named ? ", ..." : "", "; ", common.way_out);
}

/// Throws if a rank differs from the reference: the first rank with a state, else rank 0. Collective. In an elastic job
/// only the ranks that differ throw, and the job continues without them; otherwise all ranks throw.
template <class D>
void check_same(D& dev, dhp::Comm<D>& world, const Common& common, bool elastic = false,
                bool has_state = false) {
  auto texts = dhp::gather_texts(dev, world, (has_state ? "1" : "0") + common.facts);
  const auto stateful = std::find_if(texts.begin(), texts.end(),
                                     [](const auto& text) { return text.starts_with("1"); });
  const auto reference = stateful == texts.end() ? 0 : stateful - texts.begin();
  for (auto& text : texts) text.erase(0, 1);
  const auto& reference_text = texts[static_cast<std::size_t>(reference)];
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (texts[rank] != reference_text && (!elastic || texts[rank] == common.facts))
      dhp::fail(disagreement(texts, static_cast<std::size_t>(reference), rank, common));
}

[[nodiscard]] inline Common options_in_common(const RunOptions& options) {
  return {options.common, "started with",
          "start all ranks with the same options and one build of the program"};
}

/// Returns the facts without the one of this name.
[[nodiscard]] inline Common without(Common common, const std::string& name) {
  auto facts = nlohmann::ordered_json::parse(common.facts);
  facts.erase(name);
  common.facts = facts.dump();
  return common;
}

/// Returns the size of a data set, and a checksum of labels or tokens of some samples.
[[nodiscard]] inline std::string of_samples(const std::string& name, const auto& data) {
  const auto size = data.size();
  std::uint32_t sum = 0;
  for (std::int64_t part = 0; part < std::min<std::int64_t>(size, 4); ++part) {
    const std::vector<std::int64_t> index{size * part / 4};
    for (const auto& [side, array] : data.labels_only().collate(index, 0).side)
      sum = 31 * sum + dhp::detail::crc32c(array.bytes());
  }
  return dhp::concat(size, " ", name, " of checksum ", sum);
}
/// Returns data that must be the same on all ranks: samples, and the model's small files.
[[nodiscard]] inline Common data_in_common(const TrainingSetup& setup) {
  nlohmann::ordered_json facts;
  for (const auto& [name, data] : {std::pair{"training samples", &setup.train},
                                   std::pair{"held-out samples", &setup.held_out}})
    facts[name] = of_samples(name, *data);
  for (const auto& [name, text] : setup.files)
    facts[name] = dhp::concat("a ", name, " of checksum ", dhp::detail::fnv1a_text(text));
  return {facts.dump(), "read data with", "give all ranks the same data"};
}

}  // namespace examples
