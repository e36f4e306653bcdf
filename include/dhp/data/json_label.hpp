// Reads labels of tar shards from JSON, by nlohmann/json (Debian: nlohmann-json3-dev).
#pragma once

#include <dhp/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace dhp {

/// Returns the integer "label" of a JSON object; nullopt if it is missing. Throws if the text is no object.
[[nodiscard]] inline std::optional<std::int64_t> label_of_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  check(json.is_object(), "it is not a JSON object");
  const auto found = json.find("label");
  if (found == json.end()) return std::nullopt;
  check(found->is_number_integer(), "its \"label\" is not an integer");
  check(!found->is_number_unsigned() || found->get<std::uint64_t>() >> 63 == 0, "its \"label\" is ",
        found->dump(), ", beyond 2^63");
  return found->get<std::int64_t>();
}

}  // namespace dhp
