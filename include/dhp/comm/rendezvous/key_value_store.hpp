// KeyValueStore maps keys to small values for all processes of a job. RendezvousOptions say how to find the store.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/core/poll_until.hpp>

#include <cstddef>
#include <functional>
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

  virtual ~KeyValueStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns nullopt if the key is not set.
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& key) = 0;
  /// Returns the keys that begin with the prefix, with their values, sorted by key.
  [[nodiscard]] virtual Entries list(const std::string& prefix) = 0;
  virtual void remove(const std::string& key) = 0;
  /// Sets the key unless the key `guard` exists, in one atomic step. Returns whether this call has set the key. If
  /// guard and key are the same, only one of many callers gets true.
  [[nodiscard]] virtual bool set_unless(const std::string& guard, const std::string& key,
                                        const std::string& value) = 0;
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

 protected:
  static void check_key(const std::string& key) {
    check(!key.empty() && key.size() <= longest_key_bytes, "a key of a store has 1 to ",
          longest_key_bytes, " bytes, got ", key.size());
  }
  static void check_entry(const std::string& key, const std::string& value) {
    check_key(key);
    check(value.size() <= longest_value_bytes, "a store keeps values of at most ",
          longest_value_bytes, " bytes, but \"", key, "\" is to have ", value.size());
  }
};

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
  std::size_t most_unauthenticated = 256;  ///< limit of unauthenticated connections
  /// Receives a message for each refused client, and one if the rank waits long. May be called on another thread; must
  /// not throw.
  std::function<void(const std::string&)> log{};

  /// Returns a rank's name for messages: "rank 3", or "member 3" in an elastic job.
  [[nodiscard]] std::string name_of(int number) const {
    return concat(size == 0 ? "member " : "rank ", number);
  }
};

}  // namespace dhp
