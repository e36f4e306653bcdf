// TunedChoices: the fastest algorithm for each problem text, kept in a small file between runs. A damaged file, or a
// file of another GPU, driver, library version or format, is ignored.
#pragma once

#include <dhp/cuda/checked_file.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dhp::detail::cuda {

class TunedChoices {
 public:
  /// environment: one line with everything on which choices depend. Without a path, choices stay in memory.
  TunedChoices(std::string path, std::string environment)
      : path_(std::move(path)), environment_(std::move(environment)) {
    check(is_line(environment_), "the environment of tuned choices is one line");
    if (!path_.empty()) read();
  }

  [[nodiscard]] std::optional<std::string> find(const std::string& problem) const {
    const auto found = choices_.find(problem);
    return found == choices_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Keeps a choice in memory and in the file. Both texts are one line; the problem must not contain " = ". Choices
  /// that other processes have written meanwhile stay in the file. Write errors are ignored.
  void keep(const std::string& problem, const std::string& choice) {
    check(is_line(problem) && is_line(choice) && problem.find(separator) == problem.npos,
          "a tuned choice is a line, got ", problem, " and ", choice);
    choices_[problem] = choice;
    if (path_.empty()) return;
    try {
      OpenFile turn(path_ + ".lock", O_RDWR | O_CREAT);  // ranks add to the file one after another
      try {
        turn.lock();
      } catch (const Error&) {}  // the disk has no locks: ranks at the same time may lose choices
      read();
      replace_file(path_, text());
    } catch (const Error&) {
      path_.clear();
    }
  }
  [[nodiscard]] std::size_t size() const { return choices_.size(); }

  /// Returns the file's content: a title, the environment, lines "problem = choice", and a checksum.
  [[nodiscard]] std::string text() const {
    std::string out = concat(title, environment_, "\n");
    for (const auto& [problem, choice] : choices_) out += concat(problem, separator, choice, "\n");
    return with_checksum(std::move(out));
  }

 private:
  static constexpr std::string_view title = "dhp tuned choices 2\n";
  static constexpr std::string_view separator = " = ";

  [[nodiscard]] static bool is_line(const std::string& text) {
    return !text.empty() && text.find('\n') == text.npos;
  }

  /// Adds the file's choices for this environment; choices in memory stay.
  void read() {
    const auto text = read_checked(path_);
    const auto head = concat(title, environment_, "\n");
    if (!text || !text->starts_with(head)) return;
    for (auto rest = std::string_view(*text).substr(head.size()); !rest.empty();) {
      const auto line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() + 1);
      if (const auto at = line.find(separator); at != line.npos)
        choices_.emplace(line.substr(0, at), line.substr(at + separator.size()));
    }
  }

  std::string path_, environment_;
  std::map<std::string, std::string> choices_;
};

}  // namespace dhp::detail::cuda
