// Helpers of tests of etcd stores: a cluster whose members are child processes, and a proxy that loses answers.
#pragma once

#include <dhp/comm/rendezvous/etcd_store.hpp>
#include <tests/comm/rendezvous/stores.hpp>
#include <tests/support/folder.hpp>

#include <fcntl.h>
#include <sys/prctl.h>

namespace tests {

inline bool etcd_is_here() {
  std::string path = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "";
  for (path += ":"; !path.empty(); path.erase(0, path.find(':') + 1))
    if (::access((path.substr(0, path.find(':')) + "/etcd").c_str(), X_OK) == 0) return true;
  MESSAGE("skipped: this machine has no etcd (Debian: etcd-server)");
  return false;
}

// Members of etcd on free ports of this machine. Their data is in /dev/shm, because elections wait for the disk, which
// may be busy.
class EtcdCluster {
 public:
  explicit EtcdCluster(std::size_t members = 1, std::vector<std::string> more = {})
      : more_(std::move(more)), scheme_(more_.empty() ? "http" : "https"), processes_(members) {
    // Another process may take a port between its choice and the member's start.
    for (int tries = 0; !start_all(); ++tries) {
      check(tries < 5, "members of etcd end when they start; the log of the first: ", log_of(0));
    }
  }

  [[nodiscard]] std::string endpoint(std::size_t at = 0) const {
    return concat(scheme_, "://127.0.0.1:", ports_[at]);
  }
  [[nodiscard]] int port() const { return ports_[0]; }
  [[nodiscard]] EtcdOptions options() const {
    EtcdOptions options{.endpoints = {}};
    for (std::size_t at = 0; at < ports_.size(); ++at) options.endpoints.push_back(endpoint(at));
    return options;
  }
  void end(std::size_t at) { processes_[at].reset(); }
  // Also restarts a member after end(), with its old data.
  void start(std::size_t at) {
    const auto own = concat("http://127.0.0.1:", peers_[at]);
    std::string all;
    for (std::size_t each = 0; each < peers_.size(); ++each)
      all += concat(each == 0 ? "" : ",", "m", each, "=http://127.0.0.1:", peers_[each]);
    std::vector<std::string> words{"etcd"};
    const auto give = [&](const char* name, const std::string& value) {
      words.insert(words.end(), {concat("--", name), value});
    };
    give("name", concat("m", at));
    give("data-dir", folder_ / concat("m", at));
    for (const auto* name : {"listen-client-urls", "advertise-client-urls"})
      give(name, endpoint(at));
    for (const auto* name : {"listen-peer-urls", "initial-advertise-peer-urls"}) give(name, own);
    give("initial-cluster", all);
    words.insert(words.end(), more_.begin(), more_.end());
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    processes_[at] = std::make_unique<Child>([&](const Child::Send&) {
      (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const int file = ::open(log(at).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      (void)::dup2(file, 1);
      (void)::dup2(file, 2);
      ::execvp("etcd", arguments.data());
    });
  }

 private:
  [[nodiscard]] std::string log(std::size_t at) const { return folder_ / concat("log", at); }
  [[nodiscard]] std::string log_of(std::size_t at) const {
    std::ostringstream text;  // stays empty if there is no log yet
    text << std::ifstream(log(at)).rdbuf();
    return text.str();
  }
  // Returns false if a member has ended.
  [[nodiscard]] bool start_all() {
    std::vector<Socket> held;  // keeps chosen ports busy, so that none is chosen twice
    const auto free = [&] {
      held.push_back(Socket::listening({"127.0.0.1", 0}));
      return held.back().own_end().port;
    };
    ports_.clear(), peers_.clear();
    for (auto& process : processes_) {
      process.reset();
      ports_.push_back(free()), peers_.push_back(free());
    }
    held.clear();
    for (std::size_t at = 0; at < processes_.size(); ++at) {
      std::filesystem::remove_all(folder_ /
                                  concat("m", at));  // the data names the ports of the last try
      start(at);
    }
    const Deadline deadline(hang_s);
    for (std::size_t at = 0; at < processes_.size(); ++at)
      while (processes_[at]->lives() && !Socket::connected({"127.0.0.1", ports_[at]}, deadline)) {
        check(!deadline.passed(), "member ", at, " of etcd does not listen; its log: ", log_of(at));
        sleep_ms(10);
      }
    return std::all_of(processes_.begin(), processes_.end(),
                       [](const auto& process) { return process->lives(); });
  }

  Folder folder_{"/dev/shm"};
  std::vector<std::string> more_;
  std::string scheme_;
  std::vector<int> ports_{}, peers_{};
  std::vector<std::unique_ptr<Child>> processes_;
};

// Sleeps longer than a lease of 5 s. A process that does not renew its lease counts as gone when it ends. Leases are
// not shorter, because a busy machine may not run a process for 2 s.
inline void outlive_a_lease() { sleep_ms(8000); }
inline RendezvousOptions member(int number, const std::string& job = "job") {
  return {.rank = number,
          .size = 0,
          .job = job,
          .timeout_s = hang_s,
          .operation_timeout_s = hang_s,
          .refused_s = 0};
}

// Forwards to a port, and loses answers on demand.
class Proxy {
 public:
  explicit Proxy(int port) : to_(port), listener_(Socket::listening({"127.0.0.1", 0})) {
    thread_ = std::jthread([this](const std::stop_token& stop) { forward(stop); });
  }
  [[nodiscard]] std::string endpoint() const {
    return concat("http://127.0.0.1:", listener_.own_end().port);
  }
  void lose_answers(bool lose) { lose_ = lose; }
  [[nodiscard]] int lost() const { return lost_; }

 private:
  struct Pair {
    Socket client, server;
    bool ended = false;
  };
  void forward(const std::stop_token& stop) {
    std::vector<Pair> pairs;
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
      for (const auto& pair : pairs)
        for (const int fd : {pair.client.fd(), pair.server.fd()}) polled.push_back({fd, POLLIN, 0});
      (void)::poll(polled.data(), polled.size(), 10);
      for (std::size_t at = 0; at < pairs.size(); ++at) {
        auto& [client, server, ended] = pairs[at];
        if (polled[1 + 2 * at].revents != 0) ended = !pass(client, server);
        if (polled[2 + 2 * at].revents == 0 || ended) continue;
        ended = lose_ || !pass(server, client);
        lost_ += lose_;
      }
      std::erase_if(pairs, [](const Pair& pair) { return pair.ended; });
      Socket client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (client)
        pairs.push_back({std::move(client), Socket::connected({"127.0.0.1", to_}, Deadline(5))});
    }
  }
  static bool pass(const Socket& from, const Socket& to) {
    std::string bytes(1 << 16, '\0');
    return from.receive(bytes, Deadline(0)) && to.send(bytes, Deadline(5));
  }

  int to_;
  Socket listener_;
  std::atomic<bool> lose_ = false;
  std::atomic<int> lost_ = 0;
  std::jthread thread_;
};

}  // namespace tests
