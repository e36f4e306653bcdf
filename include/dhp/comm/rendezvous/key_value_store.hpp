// KeyValueStore: keys and small values that all processes of a job share; RendezvousOptions: how they find it.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {

/// Calls done() with pauses that grow until it is true or the time is over; whether it is true.
[[nodiscard]] bool poll_until(auto done, double timeout_s) {
  using Seconds = std::chrono::duration<double>;
  const auto start = std::chrono::steady_clock::now();
  for (double pause_s = 0.0005;; pause_s = std::min(2 * pause_s, 0.02)) {
    if (done()) return true;
    const double left_s = timeout_s - Seconds(std::chrono::steady_clock::now() - start).count();
    if (left_s <= 0) return false;
    std::this_thread::sleep_for(Seconds(std::min(pause_s, left_s)));
  }
}

/// Before the number of a rank or member: its connection to the store has ended. Written by the store.
inline constexpr const char* left_prefix = "left/";

}  // namespace detail

/// The store cannot be reached any more: its process has ended or does not answer.
class KeyValueStoreLost : public Error {
 public:
  using Error::Error;
};

/// Keys and values are any bytes. Any thread may call. Each call takes a limited time, then it throws
/// KeyValueStoreLost.
class KeyValueStore : detail::NonCopyable {
 public:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  static constexpr std::size_t longest_key_bytes = 256;
  static constexpr std::size_t longest_value_bytes = std::size_t{1} << 20;

  virtual ~KeyValueStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// None: the key is not set.
  [[nodiscard]] virtual std::optional<std::string> find(const std::string& key) = 0;
  /// Keys that begin with the prefix, with their values, sorted by key.
  [[nodiscard]] virtual Entries list(const std::string& prefix) = 0;
  virtual void remove(const std::string& key) = 0;
  /// Sets the key in one step with the question whether the key `guard` is set: if it is, nothing changes. A guard that
  /// is the key itself creates it: of many callers, one succeeds. Returns whether the key was set.
  [[nodiscard]] virtual bool set_unless(const std::string& guard, const std::string& key,
                                        const std::string& value) = 0;
  /// The address of this machine, in digits, at which it has reached rank 0 or, on rank 0, has been reached: by another
  /// machine if there was one. Empty: not known.
  [[nodiscard]] virtual std::string own_address() { return {}; }
  /// Whether it ends with this process.
  [[nodiscard]] virtual bool is_held_here() const { return false; }
  /// For messages: "TCP store at 10.0.0.1:29400".
  [[nodiscard]] virtual std::string description() const = 0;

  /// Waits until the key is set; throws Error after timeout_s.
  [[nodiscard]] std::string get(const std::string& key, double timeout_s) {
    std::optional<std::string> value;
    const auto is_set = [&] { return (value = find(key)).has_value(); };
    check(detail::poll_until(is_set, timeout_s), "nobody has set \"", key, "\" in the ",
          description(), " within ", timeout_s,
          " s; has the rank that is to set it ended, or not come so far?");
    return std::move(*value);
  }

 protected:
  static void check_key(const std::string& key) {
    check(!key.empty() && key.size() <= longest_key_bytes, "a key of a store has 1 to ",
          longest_key_bytes, " bytes, got ", key.size());
  }
  static void check_value(const std::string& key, const std::string& value) {
    check(value.size() <= longest_value_bytes, "a store keeps values of at most ",
          longest_value_bytes, " bytes, but \"", key, "\" is to have ", value.size());
  }
};

/// How this rank meets the others: rank 0 listens, the others connect.
///
/// size 0: an elastic job, whose number of ranks changes. Its processes connect as members. `rank` is then the number
/// that the member has chosen for itself, 0 to 2^31 - 1 and best at random, and the store accepts any. As for ranks,
/// no two connections have the same number at once, and the store writes left/NUMBER when a member's connection ends.
struct RendezvousOptions {
  int rank = 0, size = 1;
  std::string master = "127.0.0.1";  ///< of rank 0: an address or a name
  int port = 0;             ///< the first that rank 0 tries; 0: any that is free, for rank 0 alone
  std::string job = "job";  ///< differs from start to start
  std::string secret{};     ///< the same on all ranks, see job_secret(); empty: none
  double timeout_s = 300;   ///< of rank 0 for the others, and of theirs for rank 0
  double operation_timeout_s = 10;  ///< of the store that they have then
  double refused_s = 2;             ///< how long a refused rank keeps trying
  int ports = 32;                   ///< how many to try, where other jobs have taken the first ones
  std::string
      variables{};  ///< of ProcessRank: a rank that waits in vain may have those of an earlier job
  double silence_s = 5;                    ///< for a client to authenticate itself
  std::size_t most_unauthenticated = 256;  ///< connections at once
  /// Takes a sentence for each client that is refused; called by another thread, must not throw.
  std::function<void(const std::string&)> log{};

  /// For messages: "rank 3", or "member 3" of an elastic job.
  [[nodiscard]] std::string name_of(int number) const {
    return concat(size == 0 ? "member " : "rank ", number);
  }
};

}  // namespace dhp
