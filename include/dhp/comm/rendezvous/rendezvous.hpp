// rendezvous() connects a job's processes to a shared store, which rank 0 holds. job_secret() returns the job's secret.
#pragma once

#include <dhp/comm/rank_list.hpp>
#include <dhp/comm/rendezvous/tcp_store.hpp>
#include <dhp/core/open_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>

namespace dhp {

namespace detail {

inline constexpr std::size_t shortest_secret_bytes = 16, longest_secret_bytes = 4096;

/// Returns the contents of a file that only this user can access, without the final newline.
[[nodiscard]] inline std::string read_secret_file(const std::string& path) {
  struct stat status {};
  check_system(::stat(path.c_str(), &status) == 0, "DHP_JOB_SECRET_FILE: cannot look at ", path);
  check(S_ISREG(status.st_mode) && status.st_uid == ::geteuid(), "DHP_JOB_SECRET_FILE: ", path,
        " is not a file of this user");
  check((status.st_mode & (S_IRWXG | S_IRWXO)) == 0, "DHP_JOB_SECRET_FILE: others may use ", path,
        "; use chmod 600, and a new secret if others have read it");
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);
  check(file.size() <= longest_secret_bytes, "DHP_JOB_SECRET_FILE: ", path, " has ", file.size(),
        " bytes; a secret has ", shortest_secret_bytes, " to ", longest_secret_bytes);
  auto secret = file.text(0, file.size());
  if (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (!secret.empty() && secret.back() == '\r') secret.pop_back();
  return secret;
}

/// Returns the secret. variable, file: the values of the two variables; null: unset. Empty if both are unset.
[[nodiscard]] inline std::string job_secret(const char* variable, const char* file) {
  if (variable == nullptr && file == nullptr) return {};
  check(variable == nullptr || file == nullptr,
        "DHP_JOB_SECRET and DHP_JOB_SECRET_FILE are both set; unset one of them");
  const auto* const name = variable != nullptr ? "DHP_JOB_SECRET" : "DHP_JOB_SECRET_FILE";
  const auto secret = variable != nullptr ? std::string(variable) : read_secret_file(file);
  check(secret.size() >= shortest_secret_bytes && secret.size() <= longest_secret_bytes,
        "the secret of ", name, " has ", secret.size(), " bytes; a secret has ",
        shortest_secret_bytes, " to ", longest_secret_bytes,
        ": head -c 32 /dev/urandom | base64 makes one");
  return secret;
}

/// Waits until this many keys have the prefix; returns whether they do.
[[nodiscard]] inline bool wait_for_keys(KeyValueStore& store, const std::string& prefix, int count,
                                        double timeout_s) {
  return poll_until([&] { return store.list(prefix).size() >= as_size(count); }, timeout_s);
}

[[nodiscard]] inline std::string this_process() { return concat(host_name(), " ", ::getpid()); }

/// Announces this rank by the key "arrived/<rank>"; throws Error if the key exists.
inline void announce(KeyValueStore& store, const RendezvousOptions& options) {
  const auto key = concat("arrived/", options.rank);
  const auto other = store.find(key);
  check(!other, "rank ", options.rank, " has arrived at the ", store.description(), " before (",
        other.value_or(""), "); end that start of the job, or give this one a DHP_JOB of its own");
  store.set(key, this_process());
}

/// Connects to rank 0's store. If this process has just left another job, waits until rank 0 has left that one, too.
[[nodiscard]] inline std::shared_ptr<TcpStore> next_store(const RendezvousOptions& options) {
  std::shared_ptr<TcpStore> store;
  const auto is_next = [&] {
    store.reset();
    store = std::make_shared<TcpStore>(options);
    try {
      return store->find(concat("arrived/", options.rank)) != this_process();
    } catch (const KeyValueStoreLost&) {
      return false;
    }
  };
  (void)poll_until(is_next, options.timeout_s);
  return store;
}

/// Makes rank 0's store. Throws Error if another process has a store of this job at an earlier port.
[[nodiscard]] inline std::shared_ptr<TcpStoreServer> only_store(const RendezvousOptions& options) {
  auto server = std::make_shared<TcpStoreServer>(options);
  if (options.port == 0 || options.size == 1) return server;
  const auto first = TcpStore::first_of(options, server->port() - options.port);
  check(first.empty(),
        or_unset(
            concat("another process is rank 0 of job \"", options.job, "\" already, at the ", first,
                   "; give each process a rank of its own, and each start a DHP_JOB of its own"),
            options.variables));
  return server;
}

inline constexpr std::string_view all_of = "all of ";

/// On rank 0, sets "outcome" to "all of N"; if ranks are missing or lost, sets and throws a sentence that names them.
inline void gather_ranks(KeyValueStore& store, const RendezvousOptions& options) {
  const auto all_here = [&] { return wait_for_keys(store, "arrived/", options.size, 0); };
  const auto is_over = [&] { return all_here() || !store.list(left_prefix).empty(); };
  std::set<int> here, missing, gone;
  const auto look = [&] {
    here.clear(), missing.clear();
    for (int rank = 0; rank < options.size; ++rank) {
      (store.find(concat("arrived/", rank)) ? here : missing).insert(rank);
      if (store.find(concat(left_prefix, rank))) gone.insert(rank);
    }
  };
  const double quiet_s = std::min(options.quiet_s, options.timeout_s);
  if (!poll_until(is_over, quiet_s) && quiet_s < options.timeout_s && options.log) {
    look();
    if (!missing.empty())
      options.log(concat("waits for ", rank_list(missing), " at the ", store.description()));
  }
  (void)poll_until(is_over, options.timeout_s - quiet_s);
  if (all_here()) return store.set("outcome", concat(all_of, options.size));
  look();
  const auto have = [](const std::set<int>& ranks) { return ranks.size() == 1 ? " has" : " have"; };
  const auto text =
      gone.empty()
          ? or_unset(concat("after ", options.timeout_s, " s ", rank_list(here), have(here),
                            " arrived at the ", store.description(), ", ", rank_list(missing),
                            have(missing),
                            " not; start all where they can reach it, with the same DHP_JOB, or "
                            "without one the same port"),
                     options.variables)
          : concat(rank_list(gone), have(gone), " ended before ", rank_list(missing), have(missing),
                   " arrived at the ", store.description(), "; start all again");
  store.set("outcome", text);
  // The exception below ends the store, so this waits until the other ranks have read the reason.
  (void)wait_for_keys(store, "heard/", static_cast<int>(here.size() - gone.size()) - 1,
                      options.operation_timeout_s);
  fail(text);
}

/// On other ranks, waits for "outcome". Throws Error if ranks are missing.
inline void join_ranks(KeyValueStore& store, const RendezvousOptions& options) {
  const auto outcome = store.get("outcome", options.timeout_s + 10);
  if (outcome == concat(all_of, options.size)) return;
  store.set(concat("heard/", options.rank), "");
  check(!outcome.starts_with(all_of), "rank ", options.rank, " was started as one of ",
        options.size, " ranks, but rank 0 as one of ", outcome.substr(all_of.size()),
        "; start all with the same number of ranks");
  fail(outcome);
}

}  // namespace detail

/// Returns the value of DHP_JOB_SECRET, or the contents of the file DHP_JOB_SECRET_FILE, which is better protected.
[[nodiscard]] inline std::string job_secret() {
  return detail::job_secret(std::getenv("DHP_JOB_SECRET"), std::getenv("DHP_JOB_SECRET_FILE"));
}

/// Collective. All ranks return after all have arrived, or all throw an Error that names missing ones. The store has a
/// key "arrived/<rank>" per rank. Rank 0's store must outlive its use by others: ProcessWatchdog::finish() ensures it.
[[nodiscard]] inline std::shared_ptr<KeyValueStore> rendezvous(const RendezvousOptions& options) {
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "there is no rank ",
        options.rank, " in a world of ", options.size);
  check(options.timeout_s > 0, "the time limit for ranks to meet is a number of seconds, got ",
        options.timeout_s);
  if (options.rank == 0) {
    auto server = detail::only_store(options);
    detail::announce(*server, options);
    detail::gather_ranks(*server, options);
    return server;
  }
  auto client = detail::next_store(options);
  detail::announce(*client, options);
  detail::join_ranks(*client, options);
  return client;
}

}  // namespace dhp
