// meet(): the processes of a job find each other, and have a store together. Rank 0 holds it, or they share a folder.
// All ranks come back when all have arrived, or all are told who is missing.
#pragma once

#include <dhp/comm/file_store.hpp>
#include <dhp/comm/host_name.hpp>
#include <dhp/comm/watch/rank_list.hpp>
#include <dhp/comm/tcp_store.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  std::string master = "127.0.0.1";  ///< of rank 0: an address or a name
  int port = 0;                      ///< where rank 0 begins to look for a free one
  std::string listen{};  ///< where rank 0 listens, if its name for others is no address of its own
  std::string folder{};  ///< meet in this folder, which all ranks see, and not at master
  std::string job = "job";          ///< differs from start to start
  std::string secret{};             ///< the same on all ranks; see job_secret()
  double timeout_s = 300;           ///< of rank 0 for the others, and of theirs for rank 0
  double operation_timeout_s = 10;  ///< of the store that they have then
  std::function<void(const std::string&)>
      log{};  ///< who was refused and why; may come from another thread
};

namespace detail {

[[nodiscard]] inline std::set<int> ranks_under(Store& store, const std::string& prefix, int size) {
  std::set<int> ranks;
  for (const auto& [key, value] : store.list(prefix)) {
    int rank = -1;
    std::from_chars(key.data() + prefix.size(), key.data() + key.size(), rank);
    if (rank >= 0 && rank < size && key == concat(prefix, rank)) ranks.insert(rank);
  }
  return ranks;
}

/// Waits until all of `wanted` are under the prefix; those that are there in the end. meanwhile() is called between
/// two looks.
template <class Meanwhile>
std::set<int> wait_for_ranks(Store& store, const std::string& prefix, std::size_t wanted, int size,
                             double timeout_s, Meanwhile meanwhile) {
  const Deadline deadline(timeout_s);
  for (double pause_s = 0.001;; pause_s = std::min(2 * pause_s, 0.02)) {
    meanwhile();
    auto ranks = ranks_under(store, prefix, size);
    if (ranks.size() >= wanted || deadline.passed()) return ranks;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::clamp(deadline.left_s(), 0.0, pause_s)));
  }
}

[[nodiscard]] inline std::string host_and_pid() { return concat(host_name(), " ", ::getpid()); }

/// Rank 0: decides for all how it went. The decision is "all of N", or a sentence.
template <class Meanwhile>
void gather_ranks(Store& store, const RendezvousOptions& options, Meanwhile meanwhile) {
  const auto size = static_cast<std::size_t>(options.size);
  const auto nothing = [] {};
  const auto here =
      wait_for_ranks(store, "arrived/", size, options.size, options.timeout_s, meanwhile);
  if (here.size() == size) return store.set("outcome", concat("all of ", options.size));
  std::set<int> missing;
  for (int rank = 0; rank < options.size; ++rank)
    if (!here.contains(rank)) missing.insert(rank);
  const auto text =
      concat("after ", options.timeout_s, " s ", rank_list(here),
             here.size() == 1 ? " has" : " have", " arrived at the ", store.description(), ", ",
             rank_list(missing), missing.size() == 1 ? " has" : " have",
             " not; did all start, with the same DHP_JOB, and can they reach it?");
  store.set("outcome", text);
  // The store ends with this exception: those who wait in it are to hear the reason first.
  (void)wait_for_ranks(store, "heard/", here.size() - 1, options.size, 2, nothing);
  fail(text);
}

/// Other ranks: hear how it went.
inline void join_ranks(Store& store, const RendezvousOptions& options) {
  const std::string good = "all of ";
  const auto outcome = store.get("outcome", options.timeout_s + 10);
  if (outcome == concat(good, options.size)) return;
  store.set(concat("heard/", options.rank), "");
  check(outcome.substr(0, good.size()) != good, "rank ", options.rank, " was started as one of ",
        options.size, " ranks, but rank 0 as one of ", outcome.substr(good.size()),
        "; start all with the same number of ranks");
  fail(outcome);
}

inline void announce(Store& store, const RendezvousOptions& options) {
  const auto key = concat("arrived/", options.rank);
  const auto other = store.find(key);
  check(!other, "rank ", options.rank, " has arrived at the ", store.description(), " before (",
        other.value_or(""), "); end that start of the job, or give this one a DHP_JOB of its own");
  store.set(key, host_and_pid());
}

[[nodiscard]] inline std::shared_ptr<Store> meet_over_tcp(const RendezvousOptions& options) {
  const auto nothing = [] {};
  if (options.rank == 0) {
    const auto& host = options.listen.empty() ? options.master : options.listen;
    auto server = std::make_shared<TcpStoreServer>(TcpStoreServerOptions{.host = host,
                                                                         .port = options.port,
                                                                         .job = options.job,
                                                                         .secret = options.secret,
                                                                         .size = options.size,
                                                                         .log = options.log});
    announce(*server, options);
    gather_ranks(*server, options, nothing);
    return server;
  }
  auto store =
      std::make_shared<TcpStore>(TcpStoreOptions{.host = options.master,
                                                 .port = options.port,
                                                 .rank = options.rank,
                                                 .job = options.job,
                                                 .secret = options.secret,
                                                 .connect_s = options.timeout_s,
                                                 .timeout_s = options.operation_timeout_s});
  announce(*store, options);
  join_ranks(*store, options);
  return store;
}

/// Rank 0: answers those who have come to the folder with the number of this start. What an earlier start has left
/// was not written by anybody who waits: nobody reads the answer.
class FolderDoor {
 public:
  FolderDoor(FileStore& lobby, std::string start) : lobby_(&lobby), start_(std::move(start)) {}
  FolderDoor(const FolderDoor&) = delete;
  FolderDoor& operator=(const FolderDoor&) = delete;
  ~FolderDoor() {
    try {
      for (const auto& token : answered_) {
        lobby_->remove(concat("hello/", token));
        lobby_->remove(concat("answer/", token));
      }
    } catch (const Error&) {  // the folder is gone
    }
  }

  void answer() {
    for (const auto& [key, rank] : lobby_->list("hello/")) {
      const auto token = key.substr(key.find('/') + 1);
      if (answered_.contains(token) || lobby_->find(concat("answer/", token))) continue;
      lobby_->set(concat("answer/", token), start_);
      answered_.insert(token);
    }
  }

 private:
  FileStore* lobby_;
  std::string start_;
  std::set<std::string> answered_{};
};

/// In the lobby of the folder each rank leaves a fresh token, and gets the number of this start for it; all else
/// is under that number, which nobody has who was not there.
[[nodiscard]] inline std::shared_ptr<Store> meet_in_folder(const RendezvousOptions& options) {
  FileStore lobby(options.folder, concat("lobby of ", options.job), options.secret);
  const auto store_of = [&](const std::string& start) {
    return std::make_shared<FileStore>(options.folder, concat("start ", start, " of ", options.job),
                                       options.secret);
  };
  if (options.rank == 0) {
    const auto start = hex(nonce());
    const auto store = store_of(start);
    store->remove_at_end();
    FolderDoor door(lobby, start);
    announce(*store, options);
    gather_ranks(*store, options, [&] { door.answer(); });
    return store;
  }
  const auto token = hex(nonce());
  lobby.set(concat("hello/", token), concat(options.rank));
  std::string start;
  try {
    start = lobby.get(concat("answer/", token), options.timeout_s);
  } catch (const StoreLost&) {
    throw;
  } catch (const Error&) {
    lobby.remove(concat("hello/", token));
    fail("rank ", options.rank, " has found no rank 0 of job \"", options.job, "\" in the folder ",
         options.folder, " within ", options.timeout_s,
         " s; is rank 0 running, not at its end already, and with the same DHP_JOB, secret and "
         "folder?");
  }
  lobby.remove(concat("hello/", token));
  lobby.remove(concat("answer/", token));
  auto store = store_of(start);
  announce(*store, options);
  join_ranks(*store, options);
  return store;
}

}  // namespace detail

/// Collective. The store that is returned has a key "arrived/<rank>", with host and process id, for each rank. That of
/// rank 0 must outlive the use that others make of theirs: leave() sees to it, or ProcessWorld::finish().
[[nodiscard]] inline std::shared_ptr<Store> meet(const RendezvousOptions& options) {
  check(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "there is no rank ",
        options.rank, " in a world of ", options.size);
  check(options.timeout_s > 0, "the time limit for ranks to meet is a number of seconds, got ",
        options.timeout_s);
  return options.folder.empty() ? detail::meet_over_tcp(options) : detail::meet_in_folder(options);
}

/// Says that this rank needs the store no more; rank 0 waits until all have said so, at most that long. Whether all
/// have. On other ranks: whether it could be said.
inline bool leave(Store& store, int rank, int size, double timeout_s) {
  try {
    store.set(concat("left/", rank), "");
    if (rank != 0) return true;
    const auto left = detail::wait_for_ranks(store, "left/", static_cast<std::size_t>(size), size,
                                             timeout_s, [] {});
    return left.size() == static_cast<std::size_t>(size);
  } catch (const Error&) {  // whoever held it is gone already
    return false;
  }
}

}  // namespace dhp
