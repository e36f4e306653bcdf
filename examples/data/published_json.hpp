// A JSON file of a published model. Its errors name the file.
#pragma once

#include <dhp/core/open_file.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace examples {

/// Describing a model takes time and memory for each layer, so a damaged number of layers must not pass.
inline constexpr std::int64_t most_layers = 10'000;

class PublishedJson {
 public:
  explicit PublishedJson(const std::string& path) : PublishedJson(path, dhp::text_of(path)) {}
  /// path: appears in errors.
  PublishedJson(std::string path, const std::string& text)
      : path_(std::move(path)), json_(nlohmann::json::parse(text, nullptr, false)) {
    dhp::check(json_.is_object(), path_, " is damaged: it is no JSON object");
  }
  /// Reads config.json of a model's folder. otherwise: end of the error message if the file is missing.
  [[nodiscard]] static PublishedJson config_of(
      const std::string& folder, const std::string& otherwise = "which says what model it is") {
    const auto path = folder + "/config.json";
    dhp::check(std::filesystem::exists(path), folder, " has no config.json, ", otherwise);
    return PublishedJson(path);
  }
  [[nodiscard]] const nlohmann::json& json() const { return json_; }

  /// Returns the value at a key of an object in the file, or `usual` if it is absent or null.
  template <class T>
  [[nodiscard]] T get(const nlohmann::json& object, const char* key, T usual) const {
    if (!object.is_object() || !object.contains(key) || object[key].is_null()) return usual;
    try {
      return object[key].get<T>();
    } catch (const nlohmann::json::exception&) {
      dhp::fail("", path_, ": \"", key, "\" is ", object[key].dump(), ", which has the wrong type");
    }
  }
  template <class T>
  [[nodiscard]] T get(const char* key, T usual) const {
    return get(json_, key, std::move(usual));
  }
  /// Returns the number at a key; throws if it cannot be a size of a model.
  [[nodiscard]] std::int64_t size(const char* key, std::int64_t usual = 0,
                                  std::int64_t most = 1 << 28) const {
    const auto found = get(key, usual);
    dhp::check(found >= 1 && found <= most, path_, ": \"", key, "\" is ", found,
               ", which is no valid size");
    return found;
  }
  /// Throws if the value at a key is not `wanted`; a missing value passes.
  void need(const nlohmann::json& object, const char* key, const std::string& wanted,
            const std::string& what) const {
    const auto found = get(object, key, wanted);
    dhp::check(found == wanted, path_, ": its ", what, " is ", found, "; dhp has ",
               wanted.empty() ? "none" : wanted + " only");
  }
  [[nodiscard]] nlohmann::json part(const char* key) const {
    return json_.contains(key) ? json_[key] : nlohmann::json();
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  nlohmann::json json_;
};

}  // namespace examples
