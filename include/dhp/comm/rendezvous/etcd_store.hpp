// EtcdStore is a job's store in an etcd cluster. It survives the loss of any process or machine of the job, and of a
// minority of etcd's members. Needs libcurl, OpenSSL and nlohmann/json (dhp::etcd).
#pragma once

#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/comm/rendezvous/etcd_lease.hpp>
#include <dhp/comm/rendezvous/handshake.hpp>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

/// In etcd the keys of a job begin with "dhp/JOB/", where / and % of the job's name are written %2F and %25:
///
///   keys/KEY   a value that the job has set
///   member/N   rank or member N has joined
///   alive/N    N is alive; the key is bound to the lease of N's process, and its value numbers N's last write
///
/// The store shows a key left/N if member/N exists without alive/N: EtcdOptions::lease_s after the process was killed
/// or cut off, immediately after its store has ended normally. The job can only read keys under left/.
///
/// A process whose lease has ended can change nothing. If a write is sent again, because a member of etcd did not
/// answer, it takes effect once: each write requires the lease, and a greater number than the last write's.
class EtcdStore final : public KeyValueStore {
 public:
  using Json = nlohmann::json;

  /// Uses rank, size, job and the time limits of the options, but not the secret, because etcd controls access. Throws
  /// Error if etcd cannot be reached within timeout_s, or if another process has this rank or member number.
  EtcdStore(const EtcdOptions& etcd, RendezvousOptions options)
      : options_(std::move(options)),
        prefix_(concat("dhp/", escaped(options_.job), "/")),
        client_(etcd, name()),
        lease_(etcd, name(), number_of(prefix_), options_.timeout_s) {
    check(options_.rank >= 0 && (options_.size == 0 || options_.rank < options_.size),
          "there is no ", name(), " in a world of ", options_.size);
    join();
  }

  [[nodiscard]] std::string description() const override { return client_.description(); }
  [[nodiscard]] std::string own_address() override {
    const std::lock_guard lock(mutex_);
    auto address = address_towards(client_.host());
    // If the etcd member is local, this address may be unreachable from other machines, so other members are tried.
    for (const auto& host : client_.hosts()) {
      if (!is_loopback(address)) break;
      try {
        address = address_towards(host);
      } catch (const Error&) {  // the member's machine may be down
      }
    }
    return address;
  }

 private:
  [[nodiscard]] std::string name() const { return options_.name_of(options_.rank); }
  [[nodiscard]] std::string key_of(const std::string& key) const {
    return concat(prefix_, "keys/", key);
  }
  [[nodiscard]] std::string alive() const { return concat(prefix_, "alive/", options_.rank); }
  [[nodiscard]] Answer answer(const Request& request) override {
    const auto& [kind, key, value, guard] = request;
    using Kind = Request::Kind;
    if (kind == Kind::list || (kind == Kind::find && key.starts_with(left_prefix))) {
      auto entries = entries_of(key);
      if (kind == Kind::find)
        std::erase_if(entries, [&](const auto& entry) { return entry.first != request.key; });
      return {.entries = std::move(entries)};
    }
    const auto own = to_base64(key_of(key));
    if (kind == Kind::find)
      return {.entries = keys_of(locked_call("kv/range", {{"key", own}}), key_of(""))};
    for (const auto* const written : {&key, &guard})
      check(!written->starts_with(left_prefix), "keys under ", left_prefix,
            " are read-only for a job, but \"", *written,
            "\" was to be written or used as a guard");
    auto conditions = Json::array();
    if (kind == Kind::set_unless) conditions.push_back(is_missing(key_of(guard)));
    return {write(conditions, kind == Kind::remove ? Json{{"requestDeleteRange", {{"key", own}}}}
                                                   : put(key_of(key), value, lease_.job()))};
  }
  [[nodiscard]] Entries entries_of(const std::string& prefix) {
    const std::string_view left = left_prefix;
    Json reads = Json::array({range(key_of(prefix))});
    const bool with_left = left.starts_with(prefix) || prefix.starts_with(left);
    if (with_left)  // one transaction reads all three consistently
      for (const char* const folder : {"member/", "alive/"})
        reads.push_back(range(prefix_ + folder));
    const auto answer = locked_call("kv/txn", Json{{"success", reads}});
    const auto answers = responses(answer);
    check(answers.size() == reads.size(), name(), " cannot read what the ", description(),
          " lists");
    auto entries = keys_of(*answers[0], key_of(""));
    if (!with_left) return entries;
    const auto alive = keys_of(*answers[2], prefix_ + "alive/");
    for (const auto& [number, value] : keys_of(*answers[1], prefix_ + "member/")) {
      auto key = concat(left, number);
      const auto is_it = [&own = number](const auto& entry) { return entry.first == own; };
      if (key.starts_with(prefix) && std::none_of(alive.begin(), alive.end(), is_it))
        entries.emplace_back(std::move(key), "");
    }
    std::sort(entries.begin(), entries.end());
    return entries;
  }

  [[nodiscard]] static std::string escaped(const std::string& job) {
    std::string text;
    for (const char byte : job)
      if (byte == '/' || byte == '%') text += byte == '/' ? "%2F" : "%25";
      else text += byte;
    return text;
  }
  /// Returns a 62-bit hash of the text. It is never 0, because etcd would then choose a number itself.
  [[nodiscard]] static std::int64_t number_of(const std::string& text) {
    std::int64_t number = 1;
    for (const char byte : hmac_sha256("", text).substr(0, 8))
      number = (number << 8 | static_cast<unsigned char>(byte)) & ((std::int64_t{1} << 62) - 1);
    return number | 1;
  }

  [[nodiscard]] static Json put(const std::string& key, const std::string& value,
                                const std::string& lease) {
    return {
        {"requestPut", {{"key", to_base64(key)}, {"value", to_base64(value)}, {"lease", lease}}}};
  }
  /// Returns a read of all keys with this prefix, which must contain a byte other than 255.
  [[nodiscard]] static Json range(const std::string& prefix) {
    auto end = prefix;
    while (end.back() == '\xff') end.pop_back();
    ++end.back();
    return {{"requestRange", {{"key", to_base64(prefix)}, {"range_end", to_base64(end)}}}};
  }
  [[nodiscard]] static Json read(const std::string& key) {
    return {{"requestRange", {{"key", to_base64(key)}}}};
  }
  [[nodiscard]] static Json is_missing(const std::string& key) {
    return {{"key", to_base64(key)}, {"target", "VERSION"}, {"version", "0"}, {"result", "EQUAL"}};
  }
  /// Returns the results of a transaction's reads, which point into `answer`.
  [[nodiscard]] static std::vector<const Json*> responses(const Json& answer) {
    std::vector<const Json*> all;
    const auto found = answer.find("responses");
    if (found == answer.end() || !found->is_array()) return all;
    for (const auto& one : *found)
      if (const auto read = one.find("response_range"); read != one.end()) all.push_back(&*read);
    return all;
  }
  /// Returns the entries that a read found, with the prefix removed from their keys.
  [[nodiscard]] Entries keys_of(const Json& answer, const std::string& prefix) const {
    Entries entries;
    const auto found = answer.find("kvs");
    if (found == answer.end() || !found->is_array()) return entries;
    for (const auto& one : *found) {
      auto key = from_base64(etcd_text(one, "key")), value = from_base64(etcd_text(one, "value"));
      check(key && value && key->starts_with(prefix), name(), " cannot read what the ",
            description(), " lists; is it etcd?");
      entries.emplace_back(key->substr(prefix.size()), std::move(*value));
    }
    return entries;
  }

  [[nodiscard]] Json locked_call(const char* path, const Json& request) {
    const std::lock_guard lock(mutex_);
    return call(path, request);
  }
  [[nodiscard]] Json call(const char* path, const Json& request) {
    if (lost_ || lease_.ended()) lose();
    try {
      return client_.call(path, request, options_.operation_timeout_s);
    } catch (const EtcdRefusal& refusal) {
      if (refusal.code() == EtcdRefusal::not_found) lose();  // the key's lease has ended
      throw;
    }
  }
  [[noreturn]] void lose() {
    lost_ = true;
    throw KeyValueStoreLost(concat(name(), " has lost the ", description(),
                                   ": its lease has ended, since ",
                                   "this process was not heard of for ", lease_.seconds(),
                                   " s; the others count it as gone, so it has to start anew"));
  }

  /// Returns a number with leading zeros, so that texts sort like numbers.
  [[nodiscard]] static std::string sequence(std::uint64_t number) {
    const auto digits = std::to_string(number);
    return std::string(20 - digits.size(), '0') + digits;
  }
  /// Performs the operation if the conditions hold. Returns whether it was performed.
  bool write(Json conditions, const Json& operation) {
    const std::lock_guard lock(mutex_);
    const auto number = sequence(++writes_);
    const auto own = to_base64(alive());
    conditions.push_back(
        {{"key", own}, {"target", "LEASE"}, {"lease", lease_.id()}, {"result", "EQUAL"}});
    conditions.push_back(
        {{"key", own}, {"target", "VALUE"}, {"value", to_base64(number)}, {"result", "LESS"}});
    const Json request{{"compare", conditions},
                       {"success", Json::array({operation, put(alive(), number, lease_.id())})},
                       {"failure", Json::array({read(alive())})}};
    const auto answer = call("kv/txn", request);
    if (succeeded(answer)) return true;
    const auto [lease, last] = holder(answer);
    if (lease != lease_.id()) lose();
    return last == number;  // an earlier attempt succeeded, but its answer was lost
  }
  [[nodiscard]] static bool succeeded(const Json& answer) {
    const auto found = answer.find("succeeded");
    return found != answer.end() && *found == true;
  }
  /// Returns the lease and the value of alive/N in the answer of a failed transaction.
  [[nodiscard]] static std::pair<std::string, std::string> holder(const Json& answer) {
    const auto all = responses(answer);
    const auto* const kvs = all.empty() || !all[0]->contains("kvs") ? nullptr : &(*all[0])["kvs"];
    if (kvs == nullptr || !kvs->is_array() || kvs->empty()) return {};
    return {etcd_text((*kvs)[0], "lease"), from_base64(etcd_text((*kvs)[0], "value")).value_or("")};
  }

  /// Claims this process's rank or member number. If another process holds the number, waits for the end of its lease.
  void join() {
    const Json request{
        {"compare", Json::array({is_missing(alive())})},
        {"success", Json::array({put(concat(prefix_, "member/", options_.rank), "", lease_.job()),
                                 put(alive(), sequence(0), lease_.id())})},
        {"failure", Json::array({read(alive())})}};
    const auto claims = [&] {
      const auto answer = locked_call("kv/txn", request);
      return succeeded(answer) || holder(answer).first == lease_.id();
    };
    check(poll_until(claims, options_.refused_s + lease_.seconds()), "the ", description(),
          " refuses ", name(),
          ": another process is that already; give each process a number of its own, and each "
          "start a DHP_JOB of its own");
  }

  RendezvousOptions options_;
  std::string prefix_;
  std::mutex mutex_;  // guards client_, writes_ and lost_
  EtcdClient client_;
  std::uint64_t writes_ = 0;
  bool lost_ = false;
  EtcdLease lease_;
};

}  // namespace dhp::detail

namespace dhp {

using detail::EtcdStore;

}  // namespace dhp
