// Ranks that are processes compare what they were started with and what they have read, before they compute together:
// those that differ would train nonsense, or wait for each other for ever.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/core/crc32c.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/core/open_file.hpp>

#include "training.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

namespace examples {

/// What a rank has: JSON of names and of how a sentence calls their values; and the words around them.
struct Common {
  std::string facts;
  std::string has;      ///< "was started with"
  std::string way_out;  ///< "start all ranks with the same options"
};

/// "--lr 0.5 and --seed 3" of `texts[rank]`, where they are not those of the reference; of many the first.
[[nodiscard]] inline std::string different_facts(const nlohmann::ordered_json& of,
                                                 const nlohmann::ordered_json& from) {
  constexpr std::size_t most = 3;
  std::vector<std::string> found;
  for (const auto& [name, value] : of.items())
    if (from.value(name, "") != value) found.push_back(value.template get<std::string>());
  for (const auto& [name, value] : from.items())
    if (!of.contains(name)) found.push_back("no " + name);
  std::string text;
  for (std::size_t at = 0; at < std::min(found.size(), most); ++at)
    text += (at == 0 ? "" : at + 1 == found.size() ? " and " : ", ") + found[at];
  return text + (found.size() > most ? dhp::concat(" and ", found.size() - most, " more") : "");
}

/// Why the ranks may not go on together; empty: all have the same as rank `reference`. The ranks that differ as the first
/// one does are named.
[[nodiscard]] inline std::string disagreement(const std::vector<std::string>& texts,
                                              std::size_t reference, const Common& common) {
  std::set<int> ranks;
  std::string theirs;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[reference] || !(theirs.empty() || texts[rank] == theirs)) continue;
    theirs = texts[rank];
    ranks.insert(static_cast<int>(rank));
  }
  if (ranks.empty()) return {};
  const auto a = nlohmann::ordered_json::parse(theirs);
  const auto b = nlohmann::ordered_json::parse(texts[reference]);
  return dhp::concat(dhp::rank_list(ranks), " ", common.has, " ", different_facts(a, b), ", rank ",
                     reference, " with ", different_facts(b, a), "; ", common.way_out);
}

/// Collective. Throws where ranks differ: on all of them, or, of an elastic job, which goes on without them, on those that
/// differ from the first rank with a state, or else from rank 0.
template <class D>
void check_same(D& dev, dhp::Comm<D>& world, const Common& common, bool elastic = false,
                bool has_state = false) {
  const auto hash = dhp::fnv1a(common.facts);
  const auto told = dhp::gather(dev, world,
                                {static_cast<double>(hash >> 32),
                                 static_cast<double>(hash & 0xffffffff), has_state ? 1.0 : 0.0});
  std::size_t reference = 0;
  bool same = true;
  for (std::size_t at = 0; at < told.size(); at += 3) {
    same = same && told[at] == told[0] && told[at + 1] == told[1];
    if (told[at + 2] > 0 && told[3 * reference + 2] == 0) reference = at / 3;
  }
  if (same) return;
  auto texts = dhp::gather_texts(dev, world, common.facts);
  if (elastic && texts[reference] == common.facts) return;
  if (elastic)  // each of those that leave speaks of itself
    for (auto& text : texts)
      if (text != common.facts) text = texts[reference];
  dhp::fail(disagreement(texts, reference, common));
}

[[nodiscard]] inline Common options_in_common(const RunOptions& options) {
  return {options.common, "was started with", "start all ranks with the same options and program"};
}

/// Builds for several processors may differ in the last digits of the mean of all images, say.
[[nodiscard]] inline std::string rounded(const std::string& text) {
  constexpr std::size_t digits = 5;
  std::string made;
  std::size_t behind = 0;  // digits and the point, so far
  for (const char letter : text) {
    const bool digit = letter >= '0' && letter <= '9';
    behind = letter == '.' ? 1 : digit && behind > 0 ? behind + 1 : 0;
    if (behind <= digits + 1) made += letter;
  }
  return made;
}
/// Collective. Programs that were compiled for several processors may well go together, so this is said and no more.
template <class D>
void warn_of_other_programs(D& dev, dhp::Comm<D>& world) {
  const auto program = dhp::text_of("/proc/self/exe");
  const auto sum = dhp::crc32c(std::as_bytes(std::span(program.data(), program.size())));
  const auto told = dhp::gather(dev, world, {static_cast<double>(sum)});
  std::set<int> others;
  for (std::size_t rank = 0; rank < told.size(); ++rank)
    if (told[rank] != told[0]) others.insert(static_cast<int>(rank));
  if (!others.empty() && world.rank() == 0)
    std::fprintf(stderr, "warning: %s: another build of this program than that of rank 0\n",
                 dhp::rank_list(others).c_str());
}

/// Of what this rank has read: sizes, the model's small files, and some labels or tokens.
[[nodiscard]] inline Common data_in_common(const TrainingSetup& setup) {
  nlohmann::ordered_json facts;
  for (const auto& [name, data] : {std::pair{"training samples", &setup.train},
                                   std::pair{"held-out samples", &setup.held_out}}) {
    const auto size = data->size();
    std::uint32_t sum = 0;
    if (!setup.options.synthetic())
      for (std::int64_t part = 0; part < std::min<std::int64_t>(size, 4); ++part) {
        const std::vector<std::int64_t> index{size * part / 4};
        for (const auto& [side, array] : data->labels_only().collate(index, 0).side)
          sum = 31 * sum + dhp::crc32c(array.bytes());
      }
    facts[name] = dhp::concat(size, " ", name, " of checksum ", sum);
  }
  for (const auto& [name, text] : setup.files)
    facts[name] = dhp::concat("a ", name, " of checksum ", dhp::fnv1a_text(rounded(text)));
  return {facts.dump(), "has data with", "give all ranks the same data"};
}

/// Both, of an elastic job, whose members read their data before they join it.
[[nodiscard]] inline Common all_in_common(const TrainingSetup& setup) {
  auto common = options_in_common(setup.options);
  auto facts = nlohmann::ordered_json::parse(common.facts);
  facts.update(nlohmann::ordered_json::parse(data_in_common(setup).facts));
  common.facts = facts.dump();
  return common;
}

}  // namespace examples
