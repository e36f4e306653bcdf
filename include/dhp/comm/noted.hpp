// NotedComm: notes every call of a communicator in its rank's ledger. For ranks that are threads: those that are
// processes note theirs themselves, and whom they wait for.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/gather.hpp>
#include <dhp/comm/ledger.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

class NotedComm {
 public:
  /// The world.
  NotedComm(Comm<Cpu> world, std::shared_ptr<Ledger> ledger)
      : comm_(std::move(world)), ledger_(std::move(ledger)) {
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    set_group(0, std::move(all));
  }

  [[nodiscard]] int rank() const { return comm_.rank(); }
  [[nodiscard]] int size() const { return comm_.size(); }
  [[nodiscard]] int send_capacity() const { return comm_.send_capacity(); }
  [[nodiscard]] std::string transport() const { return comm_.transport(); }

  Event<Cpu> all_reduce(Cpu& dev, View<Cpu> buffer, Reduce reduce = Reduce::sum,
                        CallSite where = CallSite::current()) {
    const auto call =
        note("all_reduce", concat(text(buffer), " (", name_of(reduce), ")"), buffer, where);
    return comm_.all_reduce(dev, buffer, reduce, where);
  }
  Event<Cpu> reduce_scatter(Cpu& dev, ConstView<Cpu> in, View<Cpu> out,
                            CallSite where = CallSite::current()) {
    const auto call = note("reduce_scatter", text(in), in, where);
    return comm_.reduce_scatter(dev, in, out, where);
  }
  Event<Cpu> all_gather(Cpu& dev, ConstView<Cpu> in, View<Cpu> out,
                        CallSite where = CallSite::current()) {
    const auto call = note("all_gather", text(in), in, where);
    return comm_.all_gather(dev, in, out, where);
  }
  Event<Cpu> broadcast(Cpu& dev, View<Cpu> buffer, int root, CallSite where = CallSite::current()) {
    const auto call = note("broadcast", concat(text(buffer), " from rank ", root), buffer, where);
    return comm_.broadcast(dev, buffer, root, where);
  }
  Event<Cpu> all_to_all(Cpu& dev, ConstView<Cpu> in, View<Cpu> out,
                        CallSite where = CallSite::current()) {
    const auto call = note("all_to_all", text(in), in, where);
    return comm_.all_to_all(dev, in, out, where);
  }
  void send(Cpu& dev, Tensor<Cpu> message, int to, CallSite where = CallSite::current()) {
    const auto call = note_message("send", message, to, where);
    comm_.send(dev, std::move(message), to, where);
  }
  void recv(Cpu& dev, View<Cpu> message, int from, CallSite where = CallSite::current()) {
    const auto call = note_message("recv", message, from, where);
    comm_.recv(dev, message, from, where);
  }
  void barrier(CallSite where = CallSite::current()) {
    const auto call = note_collective("barrier", "barrier", 0, where);
    comm_.barrier(where);
  }
  [[nodiscard]] NotedComm split(int color, int key, CallSite where = CallSite::current()) {
    const auto call = note_collective("split", "split", 0, where);
    return NotedComm(*this, comm_.split(color, key, where), where);
  }
  void abort(const std::string& message) { comm_.abort(message); }

 private:
  NotedComm(const NotedComm& whole, Comm<Cpu> part, CallSite where)
      : comm_(std::move(part)), ledger_(whole.ledger_), next_group_(whole.next_group_) {
    Cpu dev;
    const int me = whole.members_->at(static_cast<std::size_t>(whole.rank()));
    const auto told = gather(dev, comm_, {static_cast<double>(me), *next_group_}, where);
    std::vector<int> members;
    double id = 0;  // later than those of every group that any of these ranks is in
    for (std::size_t at = 0; at < told.size(); at += 2) {
      members.push_back(static_cast<int>(told[at]));
      id = std::max(id, told[at + 1]);
    }
    *next_group_ = id + 1;
    set_group(static_cast<std::int64_t>(id), std::move(members));
  }
  void set_group(std::int64_t id, std::vector<int> members) {
    name_ = concat(id, "@", members.front());
    sent_.resize(members.size());
    received_.resize(members.size());
    members_ = std::make_shared<const std::vector<int>>(std::move(members));
  }

  template <class AnyView>
  [[nodiscard]] static std::string text(const AnyView& view) {
    return concat(view.count(), " ", view.dtype());
  }
  template <class AnyView>
  [[nodiscard]] Ledger::Call note(const char* operation, const std::string& of, const AnyView& view,
                                  CallSite where) {
    return note_collective(operation, concat(operation, " of ", of), view.size_bytes(), where);
  }
  [[nodiscard]] Ledger::Call note_collective(const char* operation, std::string what,
                                             std::size_t bytes, CallSite where) {
    return begin(concat(name_, "#", ++collectives_), operation, std::move(what), bytes, where);
  }
  template <class AnyView>
  [[nodiscard]] Ledger::Call note_message(const std::string& operation, const AnyView& message,
                                          int other, CallSite where) {
    const auto world_rank = [&](int rank) { return members_->at(static_cast<std::size_t>(rank)); };
    const bool sends = operation == "send";
    const int from = world_rank(sends ? rank() : other), to = world_rank(sends ? other : rank());
    const auto number = ++(sends ? sent_ : received_).at(static_cast<std::size_t>(other));
    auto call = begin(concat(name_, ":", from, ">", to, "#", number), operation,
                      concat("message of ", text(message)), message.size_bytes(), where);
    if (!sends) call.waits_for(from);
    return call;
  }
  [[nodiscard]] Ledger::Call begin(std::string key, std::string operation, std::string what,
                                   std::size_t bytes, CallSite where) {
    LedgerEntry entry;
    entry.key = std::move(key);
    entry.operation = std::move(operation);
    entry.what = std::move(what);
    entry.bytes = static_cast<std::int64_t>(bytes);
    entry.group = members_;
    entry.where = where;
    return {*ledger_, std::move(entry)};
  }

  Comm<Cpu> comm_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<double> next_group_ = std::make_shared<double>(1);  // one count for all groups
  std::string name_;
  std::shared_ptr<const std::vector<int>> members_;  // ranks of the world
  std::uint64_t collectives_ = 0;
  std::vector<std::uint64_t> sent_, received_;  // by the other rank
};

static_assert(Communicator<NotedComm, Cpu>);

}  // namespace dhp
