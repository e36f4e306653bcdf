// CLI11 with checks of every option. They reject an empty value, a number that is invalid or does not fit its type, and
// another option in place of a value. For a file of options, the error names file and line.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/core/error.hpp>

#include "../report/progress.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <istream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace examples {

// CLI11's own checks print the largest double in 309 digits, and accept NaN.
[[nodiscard]] CLI::Validator number_that(auto accepts, const std::string& name,
                                         const std::string& wanted) {
  return CLI::Validator(
      [=](std::string& text) {
        return accepts(std::strtod(text.c_str(), nullptr)) ? std::string()
                                                           : dhp::concat(text, " is not ", wanted);
      },
      name);
}
[[nodiscard]] inline CLI::Validator positive_number() {
  return number_that([](double value) { return value > 0; }, "POSITIVE", "a number above 0");
}
[[nodiscard]] inline CLI::Validator not_negative_number() {
  return number_that([](double value) { return value >= 0; }, "NONNEGATIVE",
                     "a number of 0 or more");
}
[[nodiscard]] inline CLI::Validator number_from_to(double least, double most) {
  const auto range = dhp::concat("from ", least, " to ", most);
  return number_that([=](double value) { return value >= least && value <= most; }, range,
                     "a number " + range);
}
[[nodiscard]] inline CLI::Validator number_up_to(double most) { return number_from_to(0, most); }

// The largest count. Times the largest batch, 10^6 samples, it fits into 63 bits.
inline constexpr std::int64_t max_counted = 1'000'000'000'000;

/// Returns why a text is no number of type T; empty if it is one. Rewrites whole numbers: CLI11 would read 010 as
/// octal.
template <class T>
[[nodiscard]] std::string wrong_number(std::string& text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + text.starts_with('+'), end, value);
  constexpr bool whole = std::integral<T>;
  constexpr const char* kind = !whole ? " is not a number, such as 0.5 or 1e-3"
                               : std::unsigned_integral<T>
                                   ? " is not a whole number of 0 or more, in digits"
                                   : " is not a whole number, in digits";
  if (error == std::errc::invalid_argument || last != end) return text + kind;
  if constexpr (whole) {
    constexpr auto most =
        std::unsigned_integral<T>
            ? std::numeric_limits<T>::max()
            : static_cast<T>(std::min<std::int64_t>(max_counted, std::numeric_limits<T>::max()));
    if (error != std::errc() || value > most || (std::signed_integral<T> && value < -most))
      return dhp::concat(text, " is beyond ", text[0] == '-' ? "-" : "", most,
                         ", the largest number allowed");
    text = std::to_string(value);
  } else if (error != std::errc() || !std::isfinite(value)) {
    return text + " is not a finite number from 1e-307 to 1e308 in size";
  }
  return "";
}

/// Returns how many letters to insert, delete, replace or swap with the next turn a into b (Damerau 1964).
[[nodiscard]] inline std::size_t typing_mistakes(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1,
                              least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  return least[a.size()][b.size()];
}

/// Returns the most similar option; empty if none is similar.
[[nodiscard]] inline std::string option_like(const CLI::App& app, std::string typed) {
  typed = typed.substr(0, typed.find('='));
  typed.erase(0, typed.find_first_not_of('-'));
  std::string nearest;
  if (typed.size() < 2) return nearest;
  // In half mistakes: a name with the same beginning comes after one with a single mistake, so that --save-evry is not
  // taken for --save.
  constexpr std::size_t beginning = 3;
  auto least = 2 * std::max<std::size_t>(1, typed.size() / 4) + 2;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) {
      auto mistakes = 2 * typing_mistakes(typed, name);
      if (name.starts_with(typed) || typed.starts_with(name + "-"))
        mistakes = std::min(mistakes, beginning);
      if (mistakes < least) {
        least = mistakes;
        nearest = "--" + name;
      }
    }
  return nearest;
}

/// Prints flags without the value that they set, such as --no-tf32 instead of --no-tf32{false}.
struct HelpFormatter : CLI::Formatter {
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const auto name = Formatter::make_option_name(option, positional);
    return name.substr(0, name.find("{false}"));
  }
};

/// The options of a program.
class CommandLine : public CLI::App {
 public:
  explicit CommandLine(const std::string& description) : CLI::App(description) {
    formatter(std::make_shared<HelpFormatter>());
    set_version_flag("--version", dhp::concat("dhp ", dhp::version_major, ".", dhp::version_minor,
                                              ".", dhp::version_patch));
    failure_message([this](const CLI::App*, const CLI::Error& error) {
      return dhp::concat("error: ", sentence_of(error), " (--help lists all options)\n");
    });
  }

  /// checks: CLI::Validator.
  CLI::Option* add_option(const std::string& name, auto& value, const std::string& help,
                          const auto&... checks) {
    auto* const option = CLI::App::add_option(name, value, help);
    using Value = typename decltype(std::optional(value))::value_type;  // also for an optional
    if constexpr (std::is_arithmetic_v<Value>)
      option->transform(CLI::Validator(wrong_number<Value>, ""));
    (option->check(checks), ...);
    return option;
  }
  CLI::Option* add_option_file(const std::string& name, const std::string& help);

  /// Reads the command line, then calls then(), which completes the options and may throw. Returns the exit status if
  /// the program ends here: after --help, or after an error, which is printed as one sentence.
  [[nodiscard]] std::optional<int> read(
      int argc, char** argv, const std::function<void()>& then = [] {}, int wrong_status = 2) {
    try {
      if (argc > 0) name(std::filesystem::path(argv[0]).filename().string());
      for (auto* option : get_options())
        if (takes_value(option))
          option->transform(CLI::Validator(
              [this, name = option->get_name()](std::string& text) {
                check_value(name, text);
                return std::string();
              },
              ""));
      check_words({argv + std::min(argc, 1), argv + argc});
      std::vector<std::string> given(std::reverse_iterator(argv + argc),
                                     std::reverse_iterator(argv + std::min(argc, 1)));
      parse(std::move(given));
      then();
    } catch (const CLI::ParseError& error) {
      const int status = exit_status_of([&] { return exit(error); });
      return status > 1 ? wrong_status : status;  // 1: --help was not printed to its end
    } catch (const std::exception& error) {
      std::cerr << dhp::concat("error: ", examples::sentence_of(error), "\n");
      return wrong_status;
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] static bool takes_value(const CLI::Option* option) {
    return option->get_items_expected_max() > 0;
  }
  /// Throws if the value is empty or another option: a shell variable may be unset.
  void check_value(const std::string& name, const std::string& text) const {
    constexpr const char* doubt = ": is a shell variable unset?";
    const bool may_be_spaces = name == "--prompt" && !text.empty();
    if (!may_be_spaces && text.find_first_not_of(" \t\r\n") == text.npos)
      throw CLI::ArgumentMismatch(name + " is empty" + doubt);
    const auto next = text.substr(0, text.find('='));
    if (next.starts_with("--") && get_option_no_throw(next) != nullptr)
      throw CLI::ArgumentMismatch(dhp::concat(name, " has no value before ", next, doubt));
  }
  /// Throws if an option has no value or is given twice: CLI11 would take the next word, or print a vaguer error.
  void check_words(const std::vector<std::string>& words) const {
    std::set<const CLI::Option*> seen;
    for (const auto& word : words) {
      const auto name = word.substr(0, word.find('='));
      const auto* const option = name.starts_with("-") ? get_option_no_throw(name) : nullptr;
      if (option == nullptr || !takes_value(option)) continue;
      if (word == name + "=" || (word == name && &word == &words.back())) check_value(name, "");
      if (!seen.insert(option).second && option->get_items_expected_max() == 1)
        throw CLI::ArgumentMismatch(name + " is given twice; leave one of the two out");
    }
    for (const auto* option : get_options()) {
      const char* const variable = std::getenv(option->get_envname().c_str());
      if (variable != nullptr) check_value(option->get_envname(), variable);
    }
  }
  /// Returns the error's text. For unexpected arguments it lists them, with the option that may be meant.
  [[nodiscard]] std::string sentence_of(const CLI::Error& error) const {
    if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) return error.what();
    const auto words = remaining();
    const auto text = dhp::concat(words.size() > 1 ? "The following arguments were not expected: "
                                                   : "The following argument was not expected: ",
                                  CLI::detail::join(words, " "));
    for (const auto& word : words)
      if (word.empty()) return text + "an empty one: is a shell variable unset?";
      else if (const auto like = option_like(*this, word); !like.empty())
        return text + "; did you mean " + like + "?";
    return text;
  }
};

/// A file of options in TOML, without sections. It sets options that the command line does not set.
class OptionFile : public CLI::ConfigBase {
 public:
  OptionFile(CLI::App& app, const std::string& path_option) : app_(app), path_option_(path_option) {
    comment('\0');  // CLI11 would see comments in quoted texts
  }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::map<std::string, int> lines;
    int number = 0;
    for (std::string line; std::getline(input, line);) {
      const int begun = ++number;
      if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte order mark
      line = without_comment(line);
      for (std::string more; is_open(line) && std::getline(input, more); ++number)
        line += " " + without_comment(more);
      try {
        take(line, begun, lines);
      } catch (const std::exception& error) {
        refuse(begun, dhp::detail::sentence_of(error));
      }
    }
    return {};
  }

 private:
  [[nodiscard]] static std::string without_comment(const std::string& line) {
    char quote = 0;
    std::size_t end = 0;
    for (; end < line.size() && (quote != 0 || line[end] != '#'); ++end)
      if (quote != 0 ? line[end] == quote : line[end] == '"' || line[end] == '\'')
        quote = quote != 0 ? '\0' : line[end];
    return CLI::detail::trim_copy(line.substr(0, end));
  }
  /// Returns whether a list continues on the next line.
  [[nodiscard]] static bool is_open(const std::string& line) {
    const auto value = line.find_first_not_of(" \t", line.find('=') + 1);
    return line.find('=') != line.npos && value != line.npos && line[value] == '[' &&
           line.back() != ']';
  }
  [[noreturn]] void refuse(int line, const std::string& why) const {
    throw CLI::ConfigError(
        dhp::concat(app_.get_option(path_option_)->results().back(), ", line ", line, ": ", why));
  }
  void take(const std::string& line, int number, std::map<std::string, int>& lines) const {
    if (line.empty()) return;
    const bool text = std::none_of(line.begin(), line.end(),
                                   [](char c) { return c >= 0 && c < ' ' && c != '\t'; });
    dhp::check(text, "has control characters; save it as UTF-8, a line for each option");
    dhp::check(line[0] != '[', line, " begins a section; write options without sections");
    const auto name = CLI::detail::trim_copy(line.substr(0, line.find('=')));
    dhp::check(!is_open(line), name, " begins a list without an end; add a ]");
    auto* const option = app_.get_option_no_throw("--" + name);
    const auto like = option == nullptr ? option_like(app_, name) : "";
    dhp::check(option != nullptr, "there is no option \"", name, "\"",
               like.empty() ? "" : "; did you mean " + like.substr(2) + "?");
    dhp::check(option->get_configurable(), name, " is for the command line only");
    const auto [before, first] = lines.emplace(name, number);
    dhp::check(first, name, " stands in line ", before->second, " already; leave one of them out");
    std::istringstream alone(line);
    const auto found = ConfigBase::from_config(alone);
    dhp::check(found.size() == 1 && !found[0].inputs.empty(), name, " is empty; give it a value");
    const auto values = found[0].inputs.size();
    dhp::check(values == 1 || option->get_items_expected_max() > 1, name, " has ", values,
               " values, and takes one, such as 0.5 or \"text\"");
    dhp::check(line.find('=') != line.npos || option->get_items_expected_max() == 0, name,
               " has no value; write ", name, " = VALUE");
    if (option->count() > 0) return;
    for (const auto* const other : option->get_excludes())
      if (other->count() > 0 && !lines.contains(other->get_lnames().front()))
        return;  // the command line has chosen the other one
    if (option->get_items_expected_max() == 0)
      option->add_result(option->get_flag_value(name, to_flag(found[0])));
    else option->add_result(found[0].inputs);
    option->run_callback();
  }

  CLI::App& app_;
  std::string path_option_;
};

inline CLI::Option* CommandLine::add_option_file(const std::string& name, const std::string& help) {
  config_formatter(std::make_shared<OptionFile>(*this, name));
  get_help_ptr()->configurable(false);
  get_version_ptr()->configurable(false);
  return set_config(name, "", help)
      ->check(CLI::ExistingFile)
      ->check(CLI::Validator(
          [](std::string& path) {
            return std::filesystem::is_character_file(path) ? path + " is a device, not a file"
                                                            : "";
          },
          ""))
      ->configurable(false);
}

}  // namespace examples
