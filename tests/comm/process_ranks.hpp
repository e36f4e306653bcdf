// Process ranks that run as threads of the test. Each has its own ProcessWatchdog; they share a store in memory, and
// exchange messages in memory or through an engine.
#pragma once

#include <dhp/comm/messages/process_comm.hpp>
#include <dhp/comm/observe/record.hpp>
#include <dhp/comm/watch/process_watchdog.hpp>
#include <tests/comm/ranks.hpp>

#include <deque>

namespace tests {

class MemoryStore final : public KeyValueStore {
 public:
  [[nodiscard]] std::string description() const override { return "store in memory"; }
  [[nodiscard]] bool is_held_here() const override { return held_here; }
  bool held_here = false;  // the answer of is_held_here()
  /// Called after each read of a key or prefix, before the reader continues.
  std::function<void(const std::string& key)> after_read{};
  /// From now on every access throws.
  void vanish() {
    const std::lock_guard lock(mutex_);
    down_ = true;
  }

 private:
  Answer answer(const Request& request) override {
    Answer found;
    {
      const std::lock_guard lock(mutex_);
      check(!down_, "it does not answer");
      found = table_.answer(request);
    }
    if (request.reads() && after_read) after_read(request.key);
    return found;
  }
  std::mutex mutex_;
  dhp::detail::StoreTable table_;
  bool down_ = false;
};

/// A member's connection to the shared store, from an address of its own, until cut() ends it.
class Connection final : public KeyValueStore {
 public:
  explicit Connection(std::shared_ptr<MemoryStore> store, std::string from = {},
                      std::uint32_t me = 0)
      : store_(std::move(store)), from_(std::move(from)), me_(me) {}
  std::string own_address() override { return from_; }
  [[nodiscard]] std::string description() const override { return store_->description(); }
  void cut() {
    cut_ = true;
    store_->set(concat("left/", me_), "");
  }

 private:
  Answer answer(const Request& request) override {
    if (cut_) throw KeyValueStoreLost("the connection is cut");
    return store_->ask(request);
  }
  std::shared_ptr<MemoryStore> store_;
  std::string from_;
  std::uint32_t me_;
  std::atomic<bool> cut_ = false;
};

/// The messages under way between the ranks of a job.
struct MemoryNetwork {
  struct Message {
    std::byte* data;  // a send only reads it
    std::size_t bytes;
    bool done = false;
  };
  struct Lane {
    std::deque<std::shared_ptr<Message>> sent, awaited;
  };
  using Key = std::tuple<int, int, std::uint64_t>;  // from, to, tag
  std::mutex mutex{};
  std::condition_variable changed{};
  std::map<Key, Lane> lanes{};
};

/// The later of send and receive copies the message.
class MemoryMessages final : public dhp::detail::Messages {
 public:
  MemoryMessages(ProcessWatchdog& world, std::shared_ptr<MemoryNetwork> network)
      : world_(&world), network_(std::move(network)), me_(world.rank()) {
    at_end_ = world.on_change([net = network_] {
      const std::lock_guard lock(net->mutex);
      net->changed.notify_all();
    });
  }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, dhp::detail::Peer to,
                            std::uint64_t tag, std::shared_ptr<const void> owner = {}) override {
    return begin(const_cast<std::byte*>(data), bytes, {me_, to.world_rank, tag}, true,
                 std::move(owner));
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, dhp::detail::Peer from,
                               std::uint64_t tag) override {
    return begin(data, bytes, {from.world_rank, me_, tag}, false, nullptr);
  }
  [[nodiscard]] std::string description() const override { return "memory"; }

 private:
  using Lane = MemoryNetwork::Lane;
  struct Under final : Transfer {
    ~Under() override {  // the caller may free the bytes now
      const std::lock_guard lock(network->mutex);
      std::erase(sends ? lane->sent : lane->awaited, message);
    }
    void wait() override {
      {
        std::unique_lock lock(network->mutex);
        network->changed.wait(lock, [this] { return message->done || world->ended(); });
        if (message->done) return;
      }
      world->check_alive();
    }
    Latch* world;
    std::shared_ptr<MemoryNetwork> network;
    Lane* lane;
    std::shared_ptr<MemoryNetwork::Message> message;
    std::shared_ptr<const void> owner;
    bool sends;
  };
  Handle begin(std::byte* data, std::size_t bytes, MemoryNetwork::Key key, bool sends,
               std::shared_ptr<const void> owner) {
    auto result = std::make_unique<Under>();
    result->world = world_;
    result->network = network_;
    result->owner = std::move(owner);
    result->sends = sends;
    result->message = std::make_shared<MemoryNetwork::Message>(MemoryNetwork::Message{data, bytes});
    const std::lock_guard lock(network_->mutex);
    result->lane = &network_->lanes[key];
    auto& others = sends ? result->lane->awaited : result->lane->sent;
    if (others.empty()) {
      (sends ? result->lane->sent : result->lane->awaited).push_back(result->message);
      return result;
    }
    const auto& other = *others.front();
    check(other.bytes == bytes, "messages of one tag have one length");
    if (bytes > 0) std::memcpy(sends ? other.data : data, sends ? data : other.data, bytes);
    others.front()->done = result->message->done = true;
    others.pop_front();
    network_->changed.notify_all();
    return result;
  }

  Latch* world_;
  std::shared_ptr<MemoryNetwork> network_;
  int me_;
  std::shared_ptr<void> at_end_{};
};

/// A rank's watchdog, with a short period.
inline std::shared_ptr<ProcessWatchdog> world_of(const std::shared_ptr<KeyValueStore>& store,
                                                 int rank, int size, WatchOptions options = {}) {
  options.name = concat("thread ", rank);
  options.period_s = std::min(options.period_s, 0.05);
  return std::make_shared<ProcessWatchdog>(store, rank, size, std::move(options));
}

/// Runs body(world) on every rank. Returns the sentence of each rank's error, "" if body returned.
template <class Body>
std::vector<std::string> ends_with(int ranks, double timeout_s, Body body,
                                   std::shared_ptr<KeyValueStore> store = nullptr) {
  if (!store) store = std::make_shared<MemoryStore>();
  std::vector<std::string> ends(static_cast<std::size_t>(ranks));
  on_threads(ends.size(), [&](std::size_t at) {
    const int rank = static_cast<int>(at);
    const auto world = world_of(store, rank, ranks, {.timeout_s = timeout_s});
    try {
      body(world);
      world->finish(rank);
    } catch (const Aborted& error) {
      ends[at] = error.sentence();
    } catch (const Error& error) {
      ends[at] = error.sentence();
      world->abort(error.sentence());
    }
  });
  return ends;
}

/// Connects a rank to the others.
using MakeMessages =
    std::function<std::shared_ptr<dhp::detail::Messages>(const std::shared_ptr<ProcessWatchdog>&)>;

/// Runs body(comm, dev) on every rank, over messages that `make` connects. recorded: calls are recorded.
template <class Body>
std::vector<std::string> ends_of(int ranks, double timeout_s, const MakeMessages& make, Body body,
                                 bool recorded = true) {
  return ends_with(ranks, timeout_s, [&](const std::shared_ptr<ProcessWatchdog>& world) {
    dhp::detail::ProcessComm engine(world, world->rank(), ranks, make(world));
    auto comm = recorded ? dhp::detail::recorded(*world, engine) : Comm<Cpu>::of(engine);
    Cpu dev;
    body(comm, dev);
  });
}

/// Checks an engine of messages under ProcessComm: collectives, messages, and errors that name the rank at fault. Has
/// subcases, so call it once, in a test case of its own. In messages/process_suite.cpp.
void check_processes(const MakeMessages& make);

}  // namespace tests
