// run_elastic: this process as a member of a job that goes on when ranks are lost, and takes in those that come. Its body
// runs once in each generation that this process is a member of.
#pragma once

#include <dhp/comm/elastic/membership.hpp>
#include <dhp/comm/launch_process.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

enum class GenerationEnd {
  finished,  ///< the job is done: on all ranks
  stopped,   ///< all ranks end, and the job can be started again
  changed,   ///< all ranks have left the generation in order, after the same step
};

/// A rank of a generation, for the body of run_elastic.
template <class Dev>
class GenerationRank {
 public:
  using Clock = std::chrono::steady_clock;
  GenerationRank(Membership& membership, const Generation& generation,
                 std::shared_ptr<ProcessWatchdog> watchdog, Comm<Dev> comm, MemberReport& own)
      : now(generation),
        world(std::move(comm)),
        report(own),
        membership_(membership),
        watchdog_(std::move(watchdog)) {}

  const Generation now;
  Comm<Dev> world;         ///< of all members
  MemberReport& report;    ///< kept up to date by the body: it counts when the generation ends
  std::string ended{};     ///< why the generation before has ended; empty: in order
  double agreed_s = 0;     ///< from its end to the agreement on this one
  double connected_s = 0;  ///< from there to the connections

  /// The ranks that train, as a group of their own. Collective over the world; a spare gets a group of one.
  [[nodiscard]] Comm<Dev> training_ranks() {
    if (world.size() == now.layout.size()) return world;
    return world.split(is_spare() ? -1 : 0, world.rank());
  }
  [[nodiscard]] bool is_spare() const { return world.rank() >= now.layout.size(); }
  /// Whether the job's store ends with this process, and the job with it.
  [[nodiscard]] bool holds_store() const { return watchdog_->store().is_held_here(); }
  /// On rank 0, whether it should ask all ranks to end this generation in order, since newcomers wait.
  [[nodiscard]] bool change_wanted() {
    constexpr auto period = std::chrono::milliseconds(200);
    if (world.rank() != 0 || Clock::now() - looked_ < period) return false;
    looked_ = Clock::now();
    return membership_.could_grow(now);
  }
  /// Of a spare: returns when the ranks that train have left the generation, or leaves() is true, and throws Aborted when
  /// it ends otherwise.
  template <class Leaves>
  [[nodiscard]] GenerationEnd rest(Leaves leaves) {
    for (;;) {
      watchdog_->check_alive();
      if (leaves()) return GenerationEnd::changed;
      if (const auto end = watchdog_->store().find(end_key))
        for (std::size_t at = 0; at < end_names.size(); ++at)
          if (*end == end_names[at]) return static_cast<GenerationEnd>(at);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  /// Of rank 0: what it returns, for the spares.
  void tell(GenerationEnd end) {
    if (world.rank() == 0)
      watchdog_->store().set(end_key, end_names[static_cast<std::size_t>(end)]);
  }
  /// Throws Error where this generation is not the newest: to be called before what only one job may do, such as making a
  /// checkpoint visible. By any thread, also after the generation.
  [[nodiscard]] std::function<void()> newest_check() const {
    return [watchdog = watchdog_] { watchdog->store().set("newest", ""); };
  }

 private:
  static constexpr const char* end_key = "end";
  static constexpr std::array end_names{"finished", "stopped", "changed"};
  Membership& membership_;
  std::shared_ptr<ProcessWatchdog> watchdog_;
  Clock::time_point looked_{};
};

/// A number that no other process of the job has.
[[nodiscard]] inline MemberId new_member_id() {
  const auto bytes = comm::nonce(sizeof(MemberId));
  MemberId id = 0;
  std::memcpy(&id, bytes.data(), sizeof id);
  return std::max<MemberId>(id >> 1, 1);
}
/// How a member connects to the store of its job, whichever holds it.
[[nodiscard]] inline RendezvousOptions rendezvous_of_member(const ProcessRank& me, MemberId id,
                                                            const ProcessOptions& process) {
  auto options = comm::rendezvous_of(me, process);
  options.rank = static_cast<int>(id);
  options.size = 0;
  options.operation_timeout_s = 10;  // etcd may have to elect a leader first, or a network to heal
  return options;
}
/// A store that the process that was started as rank 0 holds: the job ends with that process. With an EtcdStore it does not.
[[nodiscard]] inline std::shared_ptr<KeyValueStore> meet_elastic(const ProcessRank& me, MemberId id,
                                                                 const ProcessOptions& process) {
  const auto options = rendezvous_of_member(me, id, process);
  if (me.rank == 0) return std::make_shared<comm::TcpStoreServer>(options);
  return std::make_shared<comm::TcpStore>(options);
}

namespace comm {

/// Returns when nothing of the world's communicators runs any more; fails if that takes too long.
inline void end_generation(ProcessWatchdog& watchdog, std::int64_t number,
                           const ProcessOptions& process) {
  watchdog.leave();
  if (watchdog.wait_for_channels()) return;
  const auto text = concat("communicators of generation ", number,
                           " do not end, so this process cannot go on; start it again");
  if (process.stuck) process.stuck(text);
  fail(text);
}

}  // namespace comm

/// body(GenerationRank<Dev>&) -> GenerationEnd, for each generation. Aborted, which it may throw, ends the generation
/// and not the job. What else it throws ends this process's part in the job; the others go on. Spares run it, too, as
/// ranks behind those of the layout. Returns when the job is finished, or this process has left it as it wanted to.
template <class Dev, class Connect, class Body>
void run_elastic(std::shared_ptr<KeyValueStore> store, const ProcessRank& me, MemberId id,
                 Connect connect, Body body, const ProcessOptions& process,
                 const ElasticOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Membership membership(store, id, {me.rank, process_name()}, me.size, options);
  Generation last;
  MemberReport report;
  std::shared_ptr<ProcessWatchdog> before;  // of the last generation
  std::string ended;
  bool connected = true;
  for (auto trying = Clock::now();;) {
    const auto begin = Clock::now();
    if (std::exchange(connected, false)) trying = begin;
    const auto next = membership.next(last, report);
    if (!next) {
      const bool gives_up = options.gives_up && options.gives_up();
      if (gives_up && process.log)
        process.log(concat("stops while it waits for the job, as it was asked to: ",
                           membership.waits_for()));
      else if (last.number == 0 && process.log)
        process.log(concat("job \"", me.job, "\" has finished, says the ", store->description(),
                           "; to start it anew, give it another DHP_JOB"));
      break;
    }
    const auto& now = *next;
    if (last.number > 0 && now.number != last.number + 1) report.steps = -1;  // it was left out
    // All have left the last generation, so nobody needs its communicators. Those on GPUs must be over before the next ones
    // work there: one that ends waits for all that its GPU does.
    if (before) comm::end_generation(*before, last.number, process);
    const double agreed_s = since(begin);
    auto place = me;
    place.rank = *now.rank_of(id);
    place.size = static_cast<int>(now.members.size());
    const auto fenced = std::make_shared<comm::GenerationStore>(store, now);
    const auto watchdog =
        std::make_shared<ProcessWatchdog>(fenced, place.rank, place.size, process.watch());
    before = watchdog;
    last = now;
    try {
      const auto connecting = Clock::now();
      auto end = GenerationEnd::changed;
      bool leaves = false;
      {
        GenerationRank<Dev> rank(membership, now, watchdog, connect(watchdog, place, process),
                                 report);
        rank.ended = std::exchange(ended, {});
        rank.agreed_s = agreed_s;
        rank.connected_s = since(connecting);
        connected = true;
        end = body(rank);
        rank.tell(end);
        leaves = report.leaving && rank.is_spare();
      }  // its communicator ends, and with it all calls, before the rank says that it has finished
      if (end == GenerationEnd::changed && !leaves) continue;
      watchdog->finish(place.rank);
      if (store->is_held_here() || (end == GenerationEnd::finished && place.rank == 0))
        membership.finish();
      break;
    } catch (const Aborted& error) {
      ended = error.sentence();
    } catch (const std::exception& error) {
      if (!watchdog->ended()) watchdog->abort(comm::sentence_of(error));
      // A rank that cannot be connected to may be gone. A process that was left out comes back as a newcomer.
      const bool left_out = dynamic_cast<const comm::LeftOut*>(&error) != nullptr;
      if (!left_out && dynamic_cast<const NotConnected*>(&error) == nullptr) throw;
      ended = comm::sentence_of(error);
    }
    if (connected) continue;
    const auto text = concat("generation ", now.number, " does not connect: ", ended);
    check(since(trying) <= options.timeout_s, text, "; none has within ", options.timeout_s, " s");
    if (process.log) process.log(concat(text, "; the next one is tried"));
  }
  if (store->is_held_here()) membership.let_others_leave(2);
}

}  // namespace dhp
