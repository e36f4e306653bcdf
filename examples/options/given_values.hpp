// Finds an option among words that another parser takes later.
#pragma once

#include <string>
#include <vector>

namespace examples {

/// Returns the values that words give an option, as `--name VALUE` or `--name=VALUE`.
[[nodiscard]] inline std::vector<std::string> given_values(const std::vector<std::string>& words,
                                                           const std::string& name) {
  std::vector<std::string> values;
  for (std::size_t at = 0; at < words.size(); ++at)
    if (words[at].starts_with(name + "=")) values.push_back(words[at].substr(name.size() + 1));
    else if (words[at] == name && at + 1 < words.size()) values.push_back(words[at + 1]);
  return values;
}

}  // namespace examples
