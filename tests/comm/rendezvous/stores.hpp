// Helpers of tests of stores: checks for every store, servers on free ports, and connections that send any bytes.
#pragma once

#include <dhp/comm/rendezvous/tcp_store.hpp>
#include <tests/comm/ranks.hpp>
#include <tests/support/child.hpp>

namespace tests {

using namespace dhp::detail;

inline const std::string secret = "a secret of at least sixteen bytes";

// A log that any thread may write.
class Notes {
 public:
  [[nodiscard]] std::string all() {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  [[nodiscard]] std::function<void(const std::string&)> log() {
    return [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      text_ += text + "\n";
    };
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

inline RendezvousOptions serve(std::string job = "job") {
  return {.size = 100, .job = std::move(job), .secret = secret, .silence_s = hang_s};
}
inline RendezvousOptions serve(Notes& notes) {
  auto options = serve();
  options.log = notes.log();
  return options;
}
inline RendezvousOptions client_of(const TcpStoreServer& server, int rank = 1) {
  return {.rank = rank, .port = server.port(), .secret = secret, .timeout_s = hang_s, .ports = 1};
}

// A port on which no process listens now, low enough for a range of ports above it.
inline int free_port() {
  for (;;) {
    const int port = TcpStoreServer(serve()).port();
    if (port < 65000) return port;
  }
}

// A connection that sends and receives raw bytes, without a TcpStore.
class RawConnection {
 public:
  explicit RawConnection(int port) {
    socket_ = Socket::connected({"127.0.0.1", port}, Deadline(hang_s));
    check(static_cast<bool>(socket_), "cannot connect: ", std::strerror(errno));
  }
  // Returns false if the other side has closed.
  bool send(const std::string& bytes) { return socket_.send(bytes, Deadline(hang_s)); }
  std::optional<std::string> frame(double seconds = hang_s) {
    const Deadline deadline(seconds);
    for (std::string bytes;;) {
      if (auto got = reader_.next()) return got;
      bytes.resize(4096);
      if (!socket_.receive(bytes, deadline)) return std::nullopt;
      reader_.feed(bytes);
    }
  }
  // Returns whether the other side closes within that time. Drops the bytes that arrive before.
  bool closes(double seconds = hang_s) {
    const Deadline deadline(seconds);
    for (std::string bytes(4096, '\0'); socket_.receive(bytes, deadline);) bytes.resize(4096);
    return errno != ETIMEDOUT;
  }

 private:
  Socket socket_;
  FrameReader reader_{1 << 21};
};

// The checks that every store must pass. They remove all their keys.
inline void check_store(KeyValueStore& store) {
  CHECK(!store.find("a").has_value());
  store.set("a", "1");
  store.set("b/2", std::string("\0\xff\n", 3));
  store.set("b/1", "");
  CHECK(store.find("a").value() == "1");
  CHECK(store.find("b/2").value() == std::string("\0\xff\n", 3));
  CHECK(store.find("b/1").value().empty());
  store.set("a", "2");
  CHECK(store.get("a", 0) == "2");
  const KeyValueStore::Entries under_b{{"b/1", ""}, {"b/2", std::string("\0\xff\n", 3)}};
  CHECK(store.list("b/") == under_b);
  CHECK(store.list("").size() >= 3);
  CHECK(store.list("c").empty());
  store.remove("a");
  store.remove("a");
  CHECK(!store.find("a").has_value());
  // set_unless with all cases of an existing and a missing guard and key.
  CHECK(store.set_unless("a", "a", "created"));
  CHECK(!store.set_unless("a", "a", "created again"));
  CHECK(!store.set_unless("a", "c", "guarded"));
  CHECK(!store.find("c").has_value());
  CHECK(store.set_unless("closed", "a", "replaced"));
  CHECK(store.find("a").value() == "replaced");
  CHECK(!store.set_unless("b/1", "a", "the guard's value is empty, but it is there"));
  CHECK(store.find("a").value() == "replaced");
  CHECK(message_of([&] { (void)store.set_unless("", "a", ""); }) ==
        "a key of a store has 1 to 256 bytes, got 0");
  CHECK(message_of([&] { (void)store.set_unless("a", "", ""); }) ==
        "a key of a store has 1 to 256 bytes, got 0");
  const std::string odd("/../ \n%\0.\xc3\xa4", 11), longest(KeyValueStore::longest_key_bytes, 'k');
  store.set(odd, "odd");
  store.set(longest, std::string(KeyValueStore::longest_value_bytes, 'v'));
  CHECK(store.find(odd).value() == "odd");
  CHECK(store.list(odd.substr(0, 5)).size() == 1);
  CHECK(store.find(longest).value() == std::string(KeyValueStore::longest_value_bytes, 'v'));
  CHECK(message_of([&] { store.set(longest + "k", ""); }) ==
        "a key of a store has 1 to 256 bytes, got 257");
  CHECK(message_of([&] { (void)store.find(""); }) == "a key of a store has 1 to 256 bytes, got 0");
  CHECK(message_of([&] {
          store.set("a", std::string(KeyValueStore::longest_value_bytes + 1, 'v'));
        }) == "a store keeps values of at most 1048576 bytes, but \"a\" is to have 1048577");
  CHECK(message_of([&] {
          (void)store.set_unless("z", "a",
                                 std::string(KeyValueStore::longest_value_bytes + 1, 'v'));
        }) == "a store keeps values of at most 1048576 bytes, but \"a\" is to have 1048577");
  const auto start = std::chrono::steady_clock::now();
  CHECK(message_of([&] { (void)store.get("never", 0.05); }) ==
        concat("nobody has set \"never\" in the ", store.description(),
               " within 0.05 s; has the rank that sets it ended, or not come that far?"));
  CHECK(seconds_since(start) >= 0.05);
  for (const auto& [key, value] : store.list("")) store.remove(key);
  CHECK(store.list("").empty());
}

// Two clients of one store: each sees the changes of the other, and long lists arrive complete and sorted.
inline void check_shared(KeyValueStore& one, KeyValueStore& other, int short_keys) {
  one.set("from", "rank 0");
  CHECK(other.find("from").value() == "rank 0");
  other.set("from", "rank 1");
  CHECK(one.find("from").value() == "rank 1");
  other.remove("from");
  CHECK(!one.find("from").has_value());
  KeyValueStore::Entries expected;
  for (int i = 0; i < 7; ++i)
    expected.emplace_back(concat("big/", i), std::string(KeyValueStore::longest_value_bytes, 'a'));
  for (int i = 100; i < 100 + short_keys; ++i) expected.emplace_back(concat("big/", i), concat(i));
  std::sort(expected.begin(), expected.end());
  for (const auto& [key, value] : expected) one.set(key, value);
  one.set("bih", "no");
  one.set("bif", "no");
  CHECK(other.list("big/") == expected);
}

/// Many callers, two per store, try to create each key. One succeeds, and the key has its value. Removes all keys.
template <class Stores>  // a container of pointers
void check_one_creates(const Stores& stores, int rounds) {
  std::vector<std::atomic<int>> winners(static_cast<std::size_t>(rounds));
  std::atomic<int> won = 0;
  on_threads(2 * stores.size(), [&](std::size_t caller) {
    for (int round = 0; round < rounds; ++round) {
      const auto key = concat("create/", round);
      if (!stores[caller / 2]->set_unless(key, key, concat(caller))) continue;
      winners[static_cast<std::size_t>(round)] = static_cast<int>(caller);
      ++won;
    }
  });
  CHECK(won == rounds);
  for (int round = 0; round < rounds; ++round) {
    const auto key = concat("create/", round);
    CHECK(stores[0]->find(key).value() == concat(winners[static_cast<std::size_t>(round)].load()));
    stores[0]->remove(key);
  }
}

}  // namespace tests
