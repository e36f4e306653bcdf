// run_elastic runs this process as a member of a job that survives lost ranks and accepts new ones. The body runs once
// per generation that includes this process.
#pragma once

#include <dhp/comm/elastic/membership.hpp>
#include <dhp/comm/launch_process.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

enum class GenerationEnd {
  finished,  ///< the job is done on all ranks
  stopped,   ///< all ranks stop; the job can be started again
  changed,   ///< all ranks left the generation without an error, after the same step
};

/// A rank of a generation, for the body of run_elastic.
template <class Dev>
class GenerationRank {
 public:
  using Clock = std::chrono::steady_clock;
  GenerationRank(detail::Membership& membership, const Generation& generation,
                 std::shared_ptr<ProcessWatchdog> watchdog, Comm<Dev> comm,
                 detail::MemberReport& own)
      : now(generation),
        world(std::move(comm)),
        report(own),
        membership_(membership),
        watchdog_(std::move(watchdog)) {}

  const Generation now;
  Comm<Dev> world;               ///< communicator of all members
  detail::MemberReport& report;  ///< kept current by the body; read when the generation ends
  std::string ended{};           ///< why the previous generation ended; empty: without an error
  double agreed_s = 0;     ///< seconds from the previous generation's end to the start of `now`
  double connected_s = 0;  ///< seconds for connecting the ranks

  /// Returns the group of the training ranks; a spare gets a group of one. Collective over the world.
  [[nodiscard]] Comm<Dev> training_ranks() {
    if (world.size() == now.layout.size()) return world;
    return world.split(is_spare() ? -1 : 0, world.rank());
  }
  [[nodiscard]] bool is_spare() const { return world.rank() >= now.layout.size(); }
  /// Returns whether this process holds the job's store. The job ends with that process.
  [[nodiscard]] bool holds_store() const { return watchdog_->store().is_held_here(); }
  /// Returns whether begin_job() was called, in this generation or an earlier one.
  [[nodiscard]] bool job_has_begun() { return membership_.has_begun(); }
  /// On rank 0, notes that the job's files are its own, so that later generations may go on from them.
  void begin_job() {
    if (world.rank() == 0) membership_.begin();
  }
  /// On rank 0, returns whether this generation should end: newcomers would let the job grow, or is_to_stop(). Else
  /// returns false.
  [[nodiscard]] bool change_wanted() {
    constexpr auto period = std::chrono::milliseconds(200);
    if (world.rank() != 0 || Clock::now() - looked_ < period) return false;
    looked_ = Clock::now();
    return is_to_stop() || membership_.could_grow(now);
  }
  /// Returns whether a spare that holds the store was asked to leave: then all should save and stop.
  [[nodiscard]] bool is_to_stop() { return watchdog_->store().find(stop_key).has_value(); }
  /// For spares: waits until the training ranks have left the generation. If asked() is true, leaves it at once, or
  /// makes all stop if this process holds the store. Throws Aborted if the world ends first.
  template <class Asked>
  [[nodiscard]] GenerationEnd rest(Asked asked) {
    for (;;) {
      watchdog_->check_alive();
      if (asked()) {
        report.leaving = !holds_store();
        if (report.leaving) return GenerationEnd::changed;
        watchdog_->store().set(stop_key, "");
      }
      if (const auto text = watchdog_->store().find(end_key))
        if (const auto end = detail::Fields::parsed<GenerationEnd>(*text)) return *end;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  /// On rank 0, publishes the body's result to the spares; does nothing on other ranks.
  void report_end(GenerationEnd end) {
    if (world.rank() == 0) watchdog_->store().set(end_key, detail::Fields::written(end));
  }
  /// Returns a function that throws Error if a newer generation exists. Call it before an action that only one job may
  /// take, such as making a checkpoint visible. Any thread may call it, even after the generation has ended.
  [[nodiscard]] std::function<void()> newest_check() const {
    return [watchdog = watchdog_] { watchdog->store().set("newest", ""); };
  }

 private:
  static constexpr const char *end_key = "end", *stop_key = "stop";
  detail::Membership& membership_;
  std::shared_ptr<ProcessWatchdog> watchdog_;
  Clock::time_point looked_{};
};

[[nodiscard]] inline MemberId new_member_id() {
  const auto bytes = detail::nonce(sizeof(MemberId));
  MemberId id = 0;
  std::memcpy(&id, bytes.data(), sizeof id);
  return std::max<MemberId>(id >> 1, 1);
}
/// Returns the options with which a member connects to its job's store, whatever the kind of store.
[[nodiscard]] inline RendezvousOptions rendezvous_of_member(const ProcessRank& me, MemberId id,
                                                            const ProcessOptions& process) {
  auto options = detail::rendezvous_of(me, process);
  options.rank = static_cast<int>(id);
  options.size = 0;
  options.operation_timeout_s = 10;  // time for etcd to elect a leader, or a network to heal
  return options;
}
/// Returns the store that the process of rank 0 holds. The job ends with that process; an EtcdStore avoids this.
[[nodiscard]] inline std::shared_ptr<KeyValueStore> rendezvous_elastic(
    const ProcessRank& me, MemberId id, const ProcessOptions& process) {
  const auto options = rendezvous_of_member(me, id, process);
  if (me.rank == 0) return detail::only_store(options);
  return std::make_shared<detail::TcpStore>(options);
}

namespace detail {

/// Waits until all work of the world's communicators has ended. Throws Error if that takes too long.
inline void end_generation(ProcessWatchdog& watchdog, std::int64_t number,
                           const ProcessOptions& process) {
  watchdog.leave();
  if (watchdog.wait_for_channels()) return;
  const auto text = concat("communicators of generation ", number,
                           " do not end, so this process cannot go on; start it again");
  if (process.stuck) process.stuck(text);
  fail(text);
}

/// Returns whether a connection between this rank and another rank of the generation failed, in either direction.
[[nodiscard]] inline bool is_unreached(KeyValueStore& store, int rank) {
  for (const auto& [key, value] : store.list("unreached/"))
    if (key.ends_with(concat("/", rank)) || key.starts_with(concat("unreached/", rank, "/")))
      return true;
  return false;
}

}  // namespace detail

/// Runs body(GenerationRank<Dev>&) -> GenerationEnd in each generation. Aborted from the body ends the generation, not
/// the job. Another exception ends this process's part, and the others continue. Spares run the body too; their ranks
/// follow the layout's ranks. Returns after the job has finished, or this process has left it normally.
template <class Dev, class Connect, class Body>
void run_elastic(std::shared_ptr<KeyValueStore> store, const ProcessRank& me, MemberId id,
                 Connect connect, Body body, const ProcessOptions& process,
                 const ElasticOptions& options) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  detail::Membership membership(store, id, {me.rank, detail::process_name()}, me.size, options);
  Generation last;
  detail::MemberReport report;
  std::shared_ptr<ProcessWatchdog> before;  // watchdog of the last generation
  std::string ended;
  bool connected = true, joined = false;  // joined: this process has been connected with the others
  for (auto trying = Clock::now();;) {
    const auto begin = Clock::now();
    if (std::exchange(connected, false)) trying = begin;
    const auto next = membership.next(last, report, process.log);
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
    if (last.number > 0 && now.number != last.number + 1) {  // rank was left out
      report.steps = -1;
      joined = false;
    }
    // All members have left the last generation, so no rank uses its communicators. On GPUs they must end before new
    // ones start, because ending a communicator waits for all work of its GPU.
    if (before) detail::end_generation(*before, last.number, process);
    const double agreed_s = since(begin);
    auto place = me;
    place.rank = *now.rank_of(id);
    place.size = static_cast<int>(now.members.size());
    const auto fenced = std::make_shared<detail::GenerationStore>(store, now);
    const auto watchdog =
        std::make_shared<ProcessWatchdog>(fenced, place.rank, place.size, process.watch());
    before = watchdog;
    last = now;
    const auto tell = [&](const std::string& why, bool ends_job) {
      if (ends_job)
        membership.finish(
            concat("the job ends with rank ", place.rank, ", which holds its store: ", why));
      if (!watchdog->ended()) watchdog->abort(why);
      if (ends_job) membership.let_others_leave(5);
    };
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
        connected = joined = true;
        end = body(rank);
        rank.report_end(end);
        leaves = report.leaving && rank.is_spare();
      }  // ends the communicator and its calls before finish()
      if (end == GenerationEnd::changed && !leaves) continue;
      watchdog->finish(place.rank);
      if (store->is_held_here() || (end == GenerationEnd::finished && place.rank == 0))
        membership.finish();
      break;
    } catch (const Aborted& error) {
      ended = error.sentence();
    } catch (const std::exception& error) {
      // Try again: a rank that cannot be reached may be gone, and a process that was left out comes back as a newcomer.
      const bool fails = dynamic_cast<const detail::LeftOut*>(&error) == nullptr &&
                         dynamic_cast<const detail::NotConnected*>(&error) == nullptr;
      tell(detail::sentence_of(error), fails && store->is_held_here());
      if (fails) detail::leave_rank(place.rank, error, CallSite::current());
      ended = detail::sentence_of(error);
    } catch (...) {
      tell("an exception of unknown type", store->is_held_here());
      throw;
    }
    if (connected) continue;
    const auto text = concat("generation ", now.number, " does not connect: ", ended);
    if (!joined && !store->is_held_here() && now.steps >= 0 &&
        detail::is_unreached(watchdog->store(), place.rank)) {
      membership.withdraw();
      fail(text, "; the others go on without this process");
    }
    check(since(trying) <= options.timeout_s, text, "; none has within ", options.timeout_s, " s");
    if (process.log) process.log(concat(text, "; the next one is tried"));
  }
  if (store->is_held_here()) membership.let_others_leave(2);
}

}  // namespace dhp
