// Slurm's short forms: lists of hosts, such as "n[1-3,7],a[01-10]b[1-2],login", and of tasks on each of them, such
// as "2(x3),1". They come from the environment, so nothing in them is taken on trust.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

/// What may become of a list that a few characters stand for.
struct NodeListLimits {
  static constexpr std::int64_t hosts = 1'000'000;
  static constexpr std::size_t letters = 253;  // of a name, as in DNS
};

/// What is left to read of a list, and how to say that it makes no sense.
class ListText {
 public:
  explicit ListText(std::string_view list) : list_(list), rest_(list) {}

  [[nodiscard]] std::string_view rest() const noexcept { return rest_; }
  [[nodiscard]] bool ends() const noexcept { return rest_.empty(); }
  [[nodiscard]] bool next_is(char letter) const noexcept { return rest_.starts_with(letter); }

  std::string_view take(std::size_t letters) {
    const auto taken = rest_.substr(0, letters);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  void take(char letter) {
    require(next_is(letter), concat("there is no '", letter, "'"));
    rest_.remove_prefix(1);
  }
  std::int64_t take_number() {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    require(error == std::errc() && !next_is('-'), "there is no number");
    take(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  void require(bool ok, std::string_view wrong) const {
    check(ok, "\"", list_.substr(0, 80), list_.size() > 80 ? "\"..." : "\"",
          " is no list of Slurm's: ", wrong, " at character ", list_.size() - rest_.size());
  }

 private:
  std::string_view list_;
  std::string_view rest_;
};

/// Names that differ in the numbers in brackets, rack[1-2]n[01-16]: what stands between two commas of a list.
class NodePattern {
 public:
  [[nodiscard]] static NodePattern take(ListText& text) {
    NodePattern pattern;
    while (!text.ends() && !text.next_is(',')) {
      pattern.parts_.push_back(text.next_is('[') ? Part::numbers(text) : Part::letters(text));
      const auto& part = pattern.parts_.back();
      pattern.letters_ += part.width;
      pattern.count_ = std::min(pattern.count_ * part.count, NodeListLimits::hosts + 1);
      text.require(pattern.letters_ <= NodeListLimits::letters,
                   concat("a name has more than ", NodeListLimits::letters, " characters"));
    }
    text.require(!pattern.parts_.empty(), "there is no name");
    return pattern;
  }

  /// How many names it stands for; one more than a list may have where it is more than that.
  [[nodiscard]] std::int64_t count() const noexcept { return count_; }
  /// Name `index` of them; the last number counts fastest.
  [[nodiscard]] std::string name(std::int64_t index) const {
    std::string name;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      name.insert(0, part->at(index % part->count));
      index /= part->count;
    }
    return name;
  }

 private:
  struct Range {
    std::int64_t first;
    std::int64_t last;
    std::size_t width;  // of `first` as written: shorter numbers get zeros in front
  };
  struct Part {  // the same letters in all names, or one number of the ranges
    std::string same{};
    std::vector<Range> ranges{};
    std::int64_t count = 1;
    std::size_t width = 0;  // no name has more characters here

    static Part letters(ListText& text) {
      Part part;
      part.width = std::min(text.rest().find_first_of("[,"), text.rest().size());
      for (const char letter : text.rest().substr(0, part.width))
        text.require(letter > ' ' && letter < 127 && letter != ']' && letter != '/',
                     "there is a character that no name has");
      part.same = text.take(part.width);
      return part;
    }
    static Part numbers(ListText& text) {
      Part part;
      part.count = 0;
      text.take('[');
      for (;; text.take(',')) {
        const auto before = text.rest().size();
        Range range{};
        range.first = range.last = text.take_number();
        range.width = before - text.rest().size();
        if (text.next_is('-')) {
          text.take('-');
          range.last = text.take_number();
        }
        text.require(range.first <= range.last, "the numbers count down");
        text.require(range.last - range.first < NodeListLimits::hosts, "there are too many hosts");
        part.width = std::max(part.width, before - text.rest().size());
        part.count = std::min(part.count + range.last - range.first + 1, NodeListLimits::hosts + 1);
        part.ranges.push_back(range);
        if (text.next_is(']')) break;
      }
      text.take(']');
      return part;
    }
    [[nodiscard]] std::string at(std::int64_t index) const {
      for (const auto& range : ranges) {
        const auto numbers = range.last - range.first + 1;
        if (index < numbers) {
          auto digits = std::to_string(range.first + index);
          if (digits.size() < range.width) digits.insert(0, range.width - digits.size(), '0');
          return digits;
        }
        index -= numbers;
      }
      return same;
    }
  };

  std::vector<Part> parts_;
  std::int64_t count_ = 1;
  std::size_t letters_ = 0;
};

/// Each name in full, in the order of the list. Throws where that makes no sense or is too long.
[[nodiscard]] inline std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> names;
  for (ListText text(list);; text.take(',')) {
    const auto pattern = NodePattern::take(text);
    text.require(static_cast<std::int64_t>(names.size()) + pattern.count() <= NodeListLimits::hosts,
                 concat("there are more than ", NodeListLimits::hosts, " hosts"));
    for (std::int64_t index = 0; index < pattern.count(); ++index)
      names.push_back(pattern.name(index));
    if (text.ends()) return names;
  }
}

/// The first name of the list; what comes after its first comma is not looked at.
[[nodiscard]] inline std::string first_host(std::string_view list) {
  ListText text(list);
  return NodePattern::take(text).name(0);
}

/// How many tasks node `node` has, counted from 0, in a list such as "2(x3),1": three nodes with 2, one with 1.
[[nodiscard]] inline std::int64_t tasks_on_node(std::string_view list, std::int64_t node) {
  for (ListText text(list);; text.take(',')) {
    const auto tasks = text.take_number();
    std::int64_t nodes = 1;
    if (text.next_is('(')) {
      text.take('(');
      text.take('x');
      nodes = text.take_number();
      text.take(')');
    }
    if (node < nodes) return tasks;
    node -= nodes;
  }
}

}  // namespace dhp
