// SharedTransport: shared memory, as a transport between the ranks of one machine. JoinedTransport: that, and another
// one for ranks on other machines, as one transport for all.
#pragma once

#include <dhp/comm/message_transport.hpp>
#include <dhp/comm/process_world.hpp>
#include <dhp/comm/shared_messages.hpp>

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

class SharedTransport final : public MessageTransport<SharedMessages> {
 public:
  SharedTransport(int rank, int size, std::shared_ptr<SharedMessages> messages)
      : MessageTransport(rank, size, "shared memory", std::move(messages)) {}
  [[nodiscard]] bool reaches(int rank) const { return messages().reaches(rank); }
};

namespace detail {

/// As much as the machine has: only what is written to is taken.
[[nodiscard]] inline std::size_t memory_of_machine() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  check(pages > 0 && page_bytes > 0, "the system does not say how much memory it has");
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes);
}

}  // namespace detail

/// What a rank shares memory with.
struct SharedRanks {
  std::shared_ptr<SharedTransport> transport{};  ///< null: with none
  bool all = false;  ///< every two ranks of the world do; equal on all of them
  std::string
      refused{};  ///< why not with all that say the same domain, in a sentence; empty: with all of those
};

struct SharedOptions {
  std::string domain =
      memory_domain();           ///< ranks that say the same try to; empty: this one shares none
  std::string keys = "shared/";  ///< in the store, where it is not done only once
  SharedMessages::Options messages{};
};

/// Collective over the world. A rank that is alone on its machine, is in a container of its own, or whose system refuses,
/// shares memory with no other.
[[nodiscard]] inline SharedRanks connect_shared(ProcessWorld& world,
                                                const SharedOptions& options = {}) {
  const int me = world.rank(), ranks = world.size();
  const auto& domain = options.domain;
  std::optional<SharedBox> own;
  std::string offer = "none";
  SharedRanks made;
  try {
    if (!domain.empty()) {
      own.emplace(ranks, detail::memory_of_machine());
      offer = concat(domain, " ", own->address());
    }
  } catch (const Error& error) {
    made.refused = error.sentence();
  }
  const auto told_by_all = [&](const char* what, const std::string& mine) {
    const auto key = [&](int rank) { return concat(options.keys, what, "/", rank); };
    world.store().set(key(me), mine);
    std::vector<std::string> told;
    for (int rank = 0; rank < ranks; ++rank)
      told.push_back(rank == me ? mine : world.get(key(rank)));
    return told;
  };
  const auto offers = told_by_all("box", offer);
  std::map<int, SharedBox> opened;
  std::string reached(static_cast<std::size_t>(ranks), '-');  // by rank
  for (int other = 0; other < ranks; ++other) {
    const auto& theirs = offers[static_cast<std::size_t>(other)];
    if (!own || other == me || !theirs.starts_with(domain + " ")) continue;
    try {
      opened.emplace(other, SharedBox(ranks, theirs.substr(domain.size() + 1)));
      reached[static_cast<std::size_t>(other)] = 'x';
    } catch (const Error& error) {
      made.refused = concat("rank ", other, ": ", error.sentence());
    }
  }
  if (own) reached[static_cast<std::size_t>(me)] = 'x';
  // Two share memory only where each reaches the other's.
  const auto reaches = told_by_all("reached", reached);
  made.all = std::all_of(reaches.begin(), reaches.end(),
                         [](const auto& row) { return row.find('-') == std::string::npos; });
  std::map<int, SharedBox> others;
  for (auto& [other, box] : opened)
    if (reaches[static_cast<std::size_t>(other)][static_cast<std::size_t>(me)] == 'x')
      others.emplace(other, std::move(box));
  auto messages = options.messages;
  messages.helped = messages.helped || !made.all;  // they will wait for others elsewhere
  if (made.all || !others.empty())
    made.transport = std::make_shared<SharedTransport>(
        me, ranks,
        std::make_shared<SharedMessages>(me, std::move(*own), std::move(others), messages));
  return made;
}

class JoinedTransport final : public PeerTransport {
 public:
  JoinedTransport(std::shared_ptr<SharedTransport> near, std::shared_ptr<PeerTransport> far)
      : near_(std::move(near)), far_(std::move(far)) {}

  [[nodiscard]] int rank() const override { return far_->rank(); }
  [[nodiscard]] int size() const override { return far_->size(); }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to,
                            std::uint64_t tag) override {
    return towards(to).send(data, bytes, to, tag);
  }
  [[nodiscard]] Handle send_ahead(const std::byte* data, std::size_t bytes, int to,
                                  std::uint64_t tag) override {
    return towards(to).send_ahead(data, bytes, to, tag);
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from,
                               std::uint64_t tag) override {
    return towards(from).receive(data, bytes, from, tag);
  }
  void end() noexcept override {
    near_->end();
    far_->end();
  }
  [[nodiscard]] std::string description(int peer) const override {
    return towards(peer).description(peer);
  }

 private:
  [[nodiscard]] PeerTransport& towards(int rank) const {
    if (near_->reaches(rank)) return *near_;
    return *far_;
  }
  std::shared_ptr<SharedTransport> near_;
  std::shared_ptr<PeerTransport> far_;
};

}  // namespace dhp
