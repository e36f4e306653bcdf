// StoreTable: keys and values in memory, with limits; and the requests and answers by which others use them.
#pragma once

#include <dhp/comm/fields.hpp>
#include <dhp/comm/frames.hpp>
#include <dhp/comm/store.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhp {

namespace store_request {
inline constexpr std::uint8_t set = 16, find = 17, list = 18, remove = 19;
}
namespace store_answer {
/// failed: a sentence. entries: those that fit into one frame, and whether there are more.
inline constexpr std::uint8_t done = 32, value = 33, none = 34, entries = 35, failed = 36;
}  // namespace store_answer

/// Longest payload of a frame of requests and answers: one entry of a list, or several that are shorter.
inline constexpr std::size_t longest_store_payload =
    Store::longest_value_bytes + Store::longest_key_bytes + 64;

class StoreTable {
 public:
  struct Limits {
    std::size_t keys = std::size_t{1} << 17;
    std::size_t bytes = std::size_t{1} << 28;  ///< of keys and values together
  };
  explicit StoreTable(Limits limits) : limits_(limits) {}

  /// Throws where a limit would be passed.
  void set(const std::string& key, std::string value) {
    const std::lock_guard lock(mutex_);
    const auto at = table_.find(key);
    const bool is_new = at == table_.end();
    const std::size_t bytes = bytes_ - (is_new ? 0 : size_of(*at)) + key.size() + value.size();
    check(!is_new || table_.size() < limits_.keys, "the store has ", limits_.keys,
          " keys, and takes no more; remove some before \"", key, "\" is set");
    check(bytes <= limits_.bytes, "the store keeps at most ", limits_.bytes,
          " bytes; remove some before \"", key, "\" is set");
    table_[key] = std::move(value);
    bytes_ = bytes;
  }
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto at = table_.find(key);
    return at == table_.end() ? std::nullopt : std::optional(at->second);
  }
  void remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = table_.find(key);
    if (at == table_.end()) return;
    bytes_ -= size_of(*at);
    table_.erase(at);
  }
  /// Those after the key `after`, until the next would take more than `bytes`; second: whether there is a next.
  [[nodiscard]] std::pair<Store::Entries, bool> list(const std::string& prefix,
                                                     const std::string& after,
                                                     std::size_t bytes = ~std::size_t{0}) const {
    const std::lock_guard lock(mutex_);
    Store::Entries entries;
    std::size_t taken = 0;
    for (auto at = after < prefix ? table_.lower_bound(prefix) : table_.upper_bound(after);
         at != table_.end() && std::string_view(at->first).substr(0, prefix.size()) == prefix;
         ++at) {
      taken += size_of(*at) + 8;
      if (taken > bytes) return {std::move(entries), true};
      entries.push_back(*at);
    }
    return {std::move(entries), false};
  }

  /// What the frame asks for is done; the answer. None: the frame is no request.
  [[nodiscard]] std::optional<Frame> answer(const Frame& request) {
    FieldReader fields(request.payload);
    auto key = fields.field();
    const bool two = request.type == store_request::set || request.type == store_request::list;
    auto second = two ? fields.field() : std::string();
    if (!key || !second || !fields.empty() || key->size() > Store::longest_key_bytes)
      return std::nullopt;
    switch (request.type) {
      case store_request::set:
        if (key->empty() || second->size() > Store::longest_value_bytes) return std::nullopt;
        try {
          set(*key, std::move(*second));
        } catch (const Error& error) {
          return Frame{store_answer::failed, error.sentence()};
        }
        return Frame{store_answer::done, {}};
      case store_request::find: {
        auto value = find(*key);
        if (!value) return Frame{store_answer::none, {}};
        return Frame{store_answer::value, std::move(*value)};
      }
      case store_request::list: return entries(list(*key, *second, longest_store_payload - 8));
      case store_request::remove: remove(*key); return Frame{store_answer::done, {}};
      default: return std::nullopt;
    }
  }

 private:
  [[nodiscard]] static std::size_t size_of(const std::pair<const std::string, std::string>& entry) {
    return entry.first.size() + entry.second.size();
  }
  [[nodiscard]] static Frame entries(const std::pair<Store::Entries, bool>& listed) {
    std::string payload;
    append_number(payload, listed.second ? 1 : 0);
    for (const auto& [key, value] : listed.first) {
      append_field(payload, key);
      append_field(payload, value);
    }
    return {store_answer::entries, std::move(payload)};
  }

  Limits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> table_;
  std::size_t bytes_ = 0;
};

}  // namespace dhp
