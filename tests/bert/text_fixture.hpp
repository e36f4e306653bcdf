// A small corpus of pseudo-random tokens with sentence pairs, for several tests.
#pragma once

#include <examples/bert/sentence_pairs.hpp>
#include <examples/bert/synthetic_text.hpp>

#include <memory>

namespace tests {

inline std::shared_ptr<const examples::TokenText> some_text(
    const examples::SyntheticTextOptions& options = {}) {
  return std::make_shared<const examples::TokenText>(examples::synthetic_text(options));
}

/// Returns all pairs of a text; none are held out.
inline examples::SentencePairs all_pairs(std::shared_ptr<const examples::TokenText> text,
                                         examples::Pairing pairing = examples::Pairing::next) {
  const auto parts = examples::parts_of(*text);
  return {std::move(text), parts, pairing};
}

}  // namespace tests
