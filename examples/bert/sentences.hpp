// Cuts plain text into sentences by simple rules and a few English abbreviations.
#pragma once

#include "../data/documents.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace examples {

/// The rule for the end of a sentence.
enum class SentenceRule {
  automatic,   ///< punctuation and line ends; only punctuation if prose seems broken into lines
  lines,       ///< each line is a sentence
  punctuation  ///< a full stop, question or exclamation mark; line breaks are spaces
};

namespace detail {

inline bool is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Returns the length in bytes of the mark that begins at `at`; 0: none of `marks` begins there.
template <std::size_t N>
std::size_t mark_at(std::string_view text, std::size_t at,
                    const std::array<std::string_view, N>& marks) {
  for (const auto mark : marks)
    if (text.substr(at).starts_with(mark)) return mark.size();
  return 0;
}
/// Marks that end sentences, in many scripts. No space follows those of Chinese and Japanese, wide_ends.
inline constexpr std::array<std::string_view, 11> ends{".", "!", "?", "।", "॥", "؟",
                                                       "۔", "։", "።", "။", "…"};
inline constexpr std::array<std::string_view, 5> wide_ends{"。", "！", "？", "｡", "．"};
inline constexpr std::array<std::string_view, 15> closing{
    "\"", "'", ")", "]", "”", "’", "»", "›", "」", "』", "）", "】", "》", "〉", "］"};

inline std::size_t ends_sentence(std::string_view text, std::size_t at) {
  const auto bytes = mark_at(text, at, ends);
  return bytes > 0 ? bytes : mark_at(text, at, wide_ends);
}
inline bool is_lower(char letter) { return letter >= 'a' && letter <= 'z'; }

/// Returns whether a line ends with a mark that ends sentences, and perhaps closing quotes or brackets.
inline bool is_finished(std::string_view line) {
  const auto last = [&](const auto& marks) -> std::size_t {
    for (const auto mark : marks)
      if (line.ends_with(mark)) return mark.size();
    return 0;
  };
  while (const auto bytes = last(closing)) line.remove_suffix(bytes);
  return last(ends) + last(wide_ends) > 0;
}

/// Returns whether the full stop at `at` ends an abbreviation ("Mr.") or an initial ("J.").
inline bool is_abbreviation(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 14> known{"mr", "mrs", "ms",  "dr", "prof", "st",  "jr",
                                                   "sr", "vs",  "etc", "cf", "no",   "vol", "fig"};
  std::string word;
  for (auto from = at; from > 0 && !is_blank(text[from - 1]) && word.size() < 6; --from)
    word.insert(word.begin(), text[from - 1] >= 'A' && text[from - 1] <= 'Z'
                                  ? static_cast<char>(text[from - 1] + 32)
                                  : text[from - 1]);
  return (word.size() == 1 && is_lower(word[0])) || word.find('.') != word.npos ||
         std::find(known.begin(), known.end(), word) != known.end();
}

/// Returns whether a text is the number of a list item ("3", "(12").
inline bool is_item_number(std::string_view text) {
  return text.size() <= 4 && std::all_of(text.begin(), text.end(), [](char letter) {
           return (letter >= '0' && letter <= '9') || letter == '(';
         });
}

/// Adds the sentences of one line or paragraph. A sentence ends at . ! or ? or another script's mark (and closing
/// quotes or brackets) before a space, unless a small letter follows, or the mark ends an abbreviation or the number of
/// a list item. Chinese and Japanese marks need no space.
inline void add_by_punctuation(std::string_view text, Text& into) {
  std::size_t first = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool ascii = (text[at] & 0x80) == 0;
    if (ascii && text[at] != '.' && text[at] != '!' && text[at] != '?') continue;
    const auto mark = ends_sentence(text, at);
    if (mark == 0) continue;
    bool wide = false;
    auto end = at;
    for (std::size_t bytes = mark; bytes > 0;) {
      wide = wide || mark_at(text, end, wide_ends) > 0;
      end += bytes;
      bytes = std::max(ends_sentence(text, end), mark_at(text, end, closing));
    }
    auto next = end;
    while (next < text.size() && is_blank(text[next])) ++next;
    const bool inside =
        next == text.size() ||
        (!wide &&
         (is_item_number(text.substr(first, at - first)) || next == end || is_lower(text[next]) ||
          (text[at] == '.' && end == at + 1 && is_abbreviation(text, at))));
    if (!inside) {
      into.add_sentence(trimmed(text.substr(first, end - first)));
      first = next;
    }
    at = end - 1;
  }
  into.add_sentence(trimmed(text.substr(first)));
}

/// Calls take(line) for each line, without blanks at its ends; a blank line is "".
template <class Take>
void for_lines(std::string_view text, Take&& take) {
  const char line_end = text.find('\n') == text.npos ? '\r' : '\n';  // old Macs end lines with \r
  while (!text.empty()) {
    const auto end = text.find(line_end);
    take(trimmed(text.substr(0, end)));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
}

/// Returns whether a text looks like prose broken into the lines of a page: all its lines are short, and at most of its
/// line ends a sentence continues with a small letter on the next line.
inline bool looks_wrapped(std::string_view text) {
  constexpr std::size_t page_width = 120;
  std::int64_t pairs = 0;
  std::int64_t broken = 0;
  std::string_view before;
  bool narrow = true;
  for_lines(text, [&](std::string_view line) {
    narrow = narrow && line.size() <= page_width;
    if (!before.empty() && !line.empty()) {
      ++pairs;
      if (!is_finished(before) && is_lower(line.front())) ++broken;
    }
    before = line;
  });
  return narrow && 2 * broken > pairs;
}

}  // namespace detail

/// Appends the documents of a text, which blank lines separate.
inline void add_documents(std::string_view text, SentenceRule rule, Text& into) {
  const bool joined = rule == SentenceRule::punctuation ||
                      (rule == SentenceRule::automatic && detail::looks_wrapped(text));
  std::string paragraph;
  const auto end = [&] {
    if (!paragraph.empty()) detail::add_by_punctuation(paragraph, into);
    paragraph.clear();
    into.end_document();
  };
  detail::for_lines(text, [&](std::string_view line) {
    if (line.empty()) end();
    else if (joined) paragraph.append(paragraph.empty() ? "" : " ").append(line);
    else if (rule == SentenceRule::lines) into.add_sentence(line);
    else detail::add_by_punctuation(line, into);
  });
  end();
}

}  // namespace examples
