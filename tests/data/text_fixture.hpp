// A small corpus of pseudo-random tokens with sentence pairs, for the tests of what is built on them.
#pragma once

#include <dhp/data/sentence_pairs.hpp>
#include <dhp/data/synthetic_text.hpp>

#include <memory>

namespace dhp_test {

inline std::shared_ptr<const dhp::TokenText> some_text(
    const dhp::SyntheticTextOptions& options = {}) {
  return std::make_shared<const dhp::TokenText>(dhp::synthetic_text(options));
}

/// All pairs of a text, nothing held out.
inline dhp::SentencePairs all_pairs(std::shared_ptr<const dhp::TokenText> text,
                                    dhp::Pairing pairing = dhp::Pairing::next) {
  const auto parts = dhp::parts_of(*text);
  return {std::move(text), parts, pairing};
}

}  // namespace dhp_test
