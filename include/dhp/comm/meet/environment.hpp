// Environment: variables by name. A program reads those of its process, a test a map of its own.
#pragma once

#include <dhp/core/error.hpp>

#include <unistd.h>

#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhp {

class Environment {
 public:
  using Variables = std::map<std::string, std::string, std::less<>>;

  explicit Environment(Variables variables) : variables_(std::move(variables)) {}

  /// What the process has now; later changes are not seen.
  [[nodiscard]] static Environment of_process() {
    Variables variables;
    for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const auto equals = text.find('=');
      if (equals != text.npos)
        variables.emplace(text.substr(0, equals), text.substr(equals + 1));  // the first one counts
    }
    return Environment(std::move(variables));
  }

  /// Whether it is set, if only to nothing.
  [[nodiscard]] bool has(std::string_view name) const { return variables_.contains(name); }
  /// Empty where it is not set.
  [[nodiscard]] std::string text(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::string() : found->second;
  }
  /// None where it is not set. Throws where it is no whole number.
  [[nodiscard]] std::optional<int> number(std::string_view name) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) return std::nullopt;
    const std::string_view digits = found->second;
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    check(error == std::errc() && end == digits.data() + digits.size(), name, " is \"", digits,
          "\", not a whole number");
    return value;
  }

 private:
  Variables variables_;
};

}  // namespace dhp
