// KeyValueStore maps keys to small values for all processes of a job. RendezvousOptions say how to find the store.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/core/fields.hpp>
#include <dhp/core/poll_until.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {

/// The store sets "left/N" when the connection of rank or member N to the store has ended.
inline constexpr const char* left_prefix = "left/";

}  // namespace detail

/// Thrown if the store is out of reach: its process has ended or does not answer.
class KeyValueStoreLost : public Error {
 public:
  using Error::Error;
};

/// Keys and values may be any bytes. Thread-safe. A call that takes too long throws KeyValueStoreLost.
class KeyValueStore : detail::NonCopyable {
 public:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  static constexpr std::size_t longest_key_bytes = 256;
  static constexpr std::size_t longest_value_bytes = std::size_t{1} << 20;

  /// A call as a value. Stores differ only in how they answer it.
  struct Request {
    enum class Kind : std::uint8_t { find, list, set, set_unless, remove };
    Kind kind = Kind::find;
    std::string key{}, value{}, guard{};
    void pass(detail::Fields& fields) { fields(kind, key, value, guard); }
    [[nodiscard]] bool reads() const { return kind == Kind::find || kind == Kind::list; }
  };
  struct Answer {
    bool done = true;     ///< false: set_unless() has found its guard
    Entries entries{};    ///< what find() and list() have found
    std::string error{};  ///< why another process has refused the request; empty if it has not
    void pass(detail::Fields& fields) { fields(done, entries, error); }
  };

  virtual ~KeyValueStore() = default;

  void set(const std::string& key, const std::string& value) {
    (void)ask({Request::Kind::set, key, value});
  }
  /// Returns nullopt if the key is not set.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) {
    auto found = ask({Request::Kind::find, key}).entries;
    return found.empty() ? std::nullopt : std::optional(std::move(found.front().second));
  }
  /// Returns the keys that begin with the prefix, with their values, sorted by key.
  [[nodiscard]] Entries list(const std::string& prefix) {
    return ask({Request::Kind::list, prefix}).entries;
  }
  void remove(const std::string& key) { (void)ask({Request::Kind::remove, key}); }
  /// Sets the key unless the key `guard` exists, in one atomic step. Returns whether this call has set the key. If
  /// guard and key are the same, only one of many callers gets true.
  [[nodiscard]] bool set_unless(const std::string& guard, const std::string& key,
                                const std::string& value) {
    return ask({Request::Kind::set_unless, key, value, guard}).done;
  }
  [[nodiscard]] Answer ask(const Request& request) {
    if (request.kind == Request::Kind::set_unless) check_key(request.guard);
    if (request.kind != Request::Kind::list) check_key(request.key);
    check(request.value.size() <= longest_value_bytes, "a store keeps values of at most ",
          longest_value_bytes, " bytes, but \"", request.key, "\" is to have ",
          request.value.size());
    return answer(request);
  }

  /// Returns the numeric local address of this machine's connection to the store; on rank 0, of another rank's
  /// connection, preferably from another machine. Empty if unknown.
  [[nodiscard]] virtual std::string own_address() { return {}; }
  /// Returns whether this process holds the store, which then ends with the process.
  [[nodiscard]] virtual bool is_held_here() const { return false; }
  /// Returns the store's name in messages: "TCP store at 10.0.0.1:29400".
  [[nodiscard]] virtual std::string description() const = 0;

  /// Waits until the key is set and returns its value; throws Error after timeout_s.
  [[nodiscard]] std::string get(const std::string& key, double timeout_s) {
    std::optional<std::string> value;
    const auto is_set = [&] { return (value = find(key)).has_value(); };
    check(detail::poll_until(is_set, timeout_s), "nobody has set \"", key, "\" in the ",
          description(), " within ", timeout_s,
          " s; has the rank that sets it ended, or not come that far?");
    return std::move(*value);
  }

 private:
  /// Answers a request whose key, guard and value have the right sizes.
  [[nodiscard]] virtual Answer answer(const Request& request) = 0;

  static void check_key(const std::string& key) {
    check(!key.empty() && key.size() <= longest_key_bytes, "a key of a store has 1 to ",
          longest_key_bytes, " bytes, got ", key.size());
  }
};

namespace detail {

/// The keys and values of a store in the memory of its process. Not thread-safe.
class StoreTable {
 public:
  [[nodiscard]] KeyValueStore::Answer answer(const KeyValueStore::Request& request) {
    const auto& [kind, key, value, guard] = request;
    using Kind = KeyValueStore::Request::Kind;
    KeyValueStore::Answer answer;
    if (request.reads())
      for (auto at = table_.lower_bound(key); at != table_.end() && at->first.starts_with(key) &&
                                              (kind == Kind::list || at->first == key);
           ++at)
        answer.entries.push_back(*at);
    else if (kind == Kind::remove) table_.erase(key);
    else if (kind == Kind::set_unless && table_.contains(guard)) answer.done = false;
    else table_[key] = value;
    return answer;
  }

 private:
  std::map<std::string, std::string> table_;
};

}  // namespace detail

/// How this rank meets the others: rank 0 listens, the others connect.
///
/// size 0 means an elastic job, whose number of ranks changes. Its processes connect as members. `rank` is then a
/// number from 0 to 2^31 - 1 that the member chooses, best at random. Like ranks, the numbers of all connections must
/// differ, and the store sets left/NUMBER when a member's connection ends.
struct RendezvousOptions {
  int rank = 0, size = 1;
  std::string master = "127.0.0.1";  ///< address or name of rank 0's machine
  int port = 0;             ///< first port that rank 0 tries; 0 (only on rank 0): any free port
  std::string job = "job";  ///< name of the job, different for each start
  std::string secret{};     ///< secret of the job, see job_secret(); empty: none
  double timeout_s = 300;   ///< limit until all ranks have met, in seconds
  double operation_timeout_s = 10;  ///< limit of each operation of the store, in seconds
  double quiet_s = 10;              ///< seconds after which a rank logs the reason for its wait
  double refused_s = 2;             ///< seconds for which a refused rank keeps trying
  int ports = 32;           ///< number of ports to try, if other jobs have taken the first ones
  std::string variables{};  ///< names of launcher variables, which errors advise to unset
  double silence_s = 5;     ///< seconds that a client has to authenticate itself
  std::size_t max_unauthenticated = 256;  ///< limit of unauthenticated connections
  /// Receives a message for each refused client, and one if the rank waits long. May be called on another thread; must
  /// not throw.
  std::function<void(const std::string&)> log{};

  /// Returns a rank's name for messages: "rank 3", or "member 3" in an elastic job.
  [[nodiscard]] std::string name_of(int number) const {
    return concat(size == 0 ? "member " : "rank ", number);
  }
};

}  // namespace dhp
