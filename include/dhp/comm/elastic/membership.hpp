// Membership lets the members of an elastic job agree on generations, through the job's store. set_unless() is atomic,
// so exactly one proposal for a generation wins, and members that missed it can write nothing more. Even a broken
// network cannot split a job in two.
#pragma once

#include <dhp/comm/elastic/generation.hpp>
#include <dhp/comm/rendezvous/key_value_store.hpp>
#include <dhp/comm/watch/rank_state.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp::detail {

[[nodiscard]] inline std::string generation_key(std::int64_t number) {
  return concat("generation/", number);
}
/// Returns the prefix of all keys that a generation's ranks write.
[[nodiscard]] inline std::string generation_prefix(std::int64_t number) {
  return concat("in/", number, "/");
}

/// Returns the member whose id ends the key; 0 if there is none.
[[nodiscard]] inline MemberId member_in(const std::string& key) {
  return number_of<MemberId>(key.substr(key.rfind('/') + 1)).value_or(0);
}

/// Thrown if a later generation has started without this process.
class LeftOut : public Error {
 public:
  using Error::Error;
};

/// The store as the ranks of one generation see it. Writes throw LeftOut once a later generation exists.
class GenerationStore final : public KeyValueStore {
 public:
  GenerationStore(std::shared_ptr<KeyValueStore> store, Generation generation)
      : store_(std::move(store)),
        generation_(std::move(generation)),
        prefix_(generation_prefix(generation_.number)),
        next_(generation_key(generation_.number + 1)) {}

  [[nodiscard]] std::string own_address() override { return store_->own_address(); }
  [[nodiscard]] bool is_held_here() const override { return store_->is_held_here(); }
  [[nodiscard]] std::string description() const override {
    return concat(store_->description(), ", generation ", generation_.number);
  }

 private:
  [[nodiscard]] Answer answer(const Request& request) override {
    if (request.key.starts_with(left_prefix)) return who_has_left(request);
    auto inner = request;
    inner.key.insert(0, prefix_);
    inner.guard.insert(0, prefix_);
    if (request.kind == Request::Kind::set) {
      inner.kind = Request::Kind::set_unless;
      inner.guard = next_;
    } else if (request.kind == Request::Kind::set_unless) {
      fence(!store_->find(next_));
    }
    auto found = store_->ask(inner);
    fence(found.done || request.kind != Request::Kind::set);
    for (auto& [key, value] : found.entries) key.erase(0, prefix_.size());
    return found;
  }
  // The job's store names members, a generation's store names their ranks.
  [[nodiscard]] Answer who_has_left(Request request) {
    Answer found;
    if (request.kind == Request::Kind::list) {
      for (auto& [key, value] : store_->list(left_prefix))
        if (const auto rank = generation_.rank_of(member_in(key)))
          found.entries.emplace_back(concat(left_prefix, *rank), std::move(value));
      return found;
    }
    const auto rank = number_of<std::size_t>(request.key.substr(request.key.find('/') + 1));
    if (!rank || *rank >= generation_.members.size()) return found;
    request.key = concat(left_prefix, generation_.members[*rank]);
    return store_->ask(request);
  }
  void fence(bool open) const {
    if (!open)
      throw LeftOut(concat("this process was left out of generation ", generation_.number + 1,
                           ": it was stopped or could not be reached for too long"));
  }
  std::shared_ptr<KeyValueStore> store_;
  Generation generation_;
  std::string prefix_, next_;
};

/// A newcomer's announcement to the job.
struct Newcomer {
  int hint = 0;  ///< the launcher's rank, by which newcomers are ordered
  std::string name{};
  void pass(Fields& fields) { fields(hint, name); }
};

class Membership {
 public:
  /// Announces this process. If no generation has a live member, newcomers propose the next one once all `started`
  /// processes are announced: the newcomer of hint 0 immediately, the others a little later, in case that one is lost.
  Membership(std::shared_ptr<KeyValueStore> store, MemberId me, const Newcomer& presented,
             int started, ElasticOptions options)
      : store_(std::move(store)),
        me_(me),
        presented_(Fields::written(presented)),
        first_(presented.hint == 0),
        started_(started),
        options_(options) {
    present();
  }

  [[nodiscard]] MemberId me() const { return me_; }

  /// Reports that this process is done with `last`, and waits for the next generation that includes the process. The
  /// report counts unless a later generation exists already. Returns nullopt if the job has finished, or if this
  /// process gives up (ElasticOptions::gives_up). A member with state gives up only after it has proposed a generation
  /// with fewer replicas, in which the remaining members can save. Throws Error after timeout_s, or with the reason of
  /// finish(). log, if not null, is called once with the reason for the wait, after a thirtieth of that time.
  [[nodiscard]] std::optional<Generation> next(
      const Generation& last, const MemberReport& mine,
      const std::function<void(const std::string&)>& log = {}) {
    const auto begun = Clock::now();
    too_few_ = false;
    Generation newest = last;
    bool member = last.rank_of(me_).has_value();
    bool was_member = member;
    if (member)
      member = store_->set_unless(generation_key(last.number + 1), report_key(last.number, me_),
                                  Fields::written(mine));
    else if (last.number == 0) newest.number = hint_of_newest();
    const std::string nobody_takes_it = "it is not taken in by any";
    auto& problem = waits_for_ = nobody_takes_it;
    double looked_s = 0;  // time of the last proposal as a newcomer
    bool logged = !log;
    std::optional<Clock::time_point> asked;  // first time that gives_up() was true
    for (double pause_s = 0.001;; pause_s = std::min(2 * pause_s, member ? 0.01 : 0.05)) {
      while (auto text = store_->find(generation_key(newest.number + 1))) {
        auto read = Fields::parsed<Generation>(*text);
        check(read.has_value(), "the ", store_->description(), " has no generation ",
              newest.number + 1, " that this program can read; do all run the same version?");
        newest = std::move(*read);
        if (newest.rank_of(me_)) return newest;
        member = false;
        problem = nobody_takes_it;
      }
      if (was_member && !member) {  // this process was left out
        present();
        was_member = false;
      }
      if (const auto why = store_->find(finished_key)) {
        check(why->empty(), *why);
        return std::nullopt;
      }
      const bool may_give_up = !member || too_few_;
      if (may_give_up && options_.gives_up && options_.gives_up() &&
          !is_needed(newest, member, asked)) {
        const bool saves = member && mine.steps >= 0 && options_.layouts.min_replicas > 1;
        if (!saves) {
          withdraw();
          return std::nullopt;
        }
        options_.layouts.min_replicas = 1;  // one more generation, whose ranks stop together
        too_few_ = false;
      }
      const double waited_s = std::chrono::duration<double>(Clock::now() - begun).count();
      if (member || (newest.number == 0 && first_) || waited_s > looked_s + newcomer_s) {
        looked_s = waited_s;
        problem = propose(newest, waited_s);
        if (problem.empty()) continue;
      }
      if (waited_s > options_.timeout_s / 30 && !std::exchange(logged, true))
        log(concat("waits up to ", options_.timeout_s, " s: ", problem));
      check(waited_s <= options_.timeout_s, "no generation after ", newest.number,
            " took in this process within ", options_.timeout_s, " s: ", problem);
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    }
  }

  /// Returns the reason for the latest wait in next().
  [[nodiscard]] const std::string& waits_for() const { return waits_for_; }
  /// Returns whether the newcomers would make a larger layout possible.
  [[nodiscard]] bool could_grow(const Generation& now) {
    const auto gone = members_with("left/");
    const auto fresh = newcomers(now).size();
    if (fresh == 0) return false;
    const auto trained = as_size(now.layout.size());
    auto ranks = trained + fresh;
    for (auto spare = trained; spare < now.members.size(); ++spare)
      if (!gone.contains(now.members[spare])) ++ranks;
    const auto layout = layout_for(ranks, now.layout, options_);
    return layout && layout->size() > now.layout.size();
  }
  /// Records that the job has begun to train. From now on it owns its files.
  void begin() { store_->set(begun_key, ""); }
  [[nodiscard]] bool has_begun() { return store_->find(begun_key).has_value(); }
  /// Tells all processes that no further generation will come. why: the reason; empty if the job is done.
  void finish(const std::string& why = {}) { store_->set(finished_key, why); }
  /// Removes this process's announcement, when it leaves the job.
  void withdraw() { store_->remove(member_key()); }
  /// Waits up to limit_s until all other members have left the store. Call this before the process that holds it ends.
  void let_others_leave(double limit_s) {
    (void)poll_until([&] { return !others_present(); }, limit_s);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr const char* begun_key = "begun";
  static constexpr const char* finished_key = "finished";
  static constexpr const char* newest_key = "newest";

  [[nodiscard]] bool others_present() {
    const auto gone = members_with("left/");
    for (const auto member : members_with("member/"))
      if (member != me_ && !gone.contains(member)) return true;
    return false;
  }
  /// Returns whether this process, which is no longer a member, holds the store and others still need it. The answer
  /// turns false when the others have ended, or after store_stays_s.
  [[nodiscard]] bool is_needed(const Generation& newest, bool member,
                               std::optional<Clock::time_point>& asked) {
    if (!store_->is_held_here() || member || newest.number == 0) return false;
    if (!asked) asked = Clock::now();
    return Clock::now() - *asked < std::chrono::duration<double>(options_.store_stays_s) &&
           others_present();
  }

  [[nodiscard]] std::string member_key() const { return concat("member/", me_); }
  void present() { store_->set(member_key(), presented_); }
  [[nodiscard]] static std::string report_key(std::int64_t generation, MemberId member) {
    return concat("report/", generation, "/", member);
  }
  [[nodiscard]] std::set<MemberId> members_with(const std::string& prefix) {
    std::set<MemberId> members;
    for (const auto& [name, value] : store_->list(prefix)) members.insert(member_in(name));
    return members;
  }
  /// Returns a generation number from which to search for the newest one.
  [[nodiscard]] std::int64_t hint_of_newest() {
    const auto text = store_->find(newest_key);
    return text ? Fields::parsed<std::int64_t>(*text).value_or(1) - 1 : 0;
  }
  [[nodiscard]] std::vector<MemberId> newcomers(const Generation& last) {
    const auto gone = members_with("left/");
    std::vector<std::pair<int, MemberId>> found;
    for (const auto& [name, value] : store_->list("member/")) {
      const auto member = member_in(name);
      const auto presented = Fields::parsed<Newcomer>(value);
      if (presented && !gone.contains(member) && !last.rank_of(member))
        found.emplace_back(presented->hint, member);
    }
    std::sort(found.begin(), found.end());
    std::vector<MemberId> members;
    for (const auto& [hint, member] : found) members.push_back(member);
    return members;
  }

  /// Proposes the generation after `last` if that is due, and returns an empty text. Otherwise returns why it waits.
  [[nodiscard]] std::string propose(const Generation& last, double waited_s) {
    const auto gone = members_with("left/");
    std::map<MemberId, MemberReport> reports;
    for (const auto& [name, value] : store_->list(
             report_key(last.number, 0).substr(0, report_key(last.number, 0).size() - 1))) {
      const auto report = Fields::parsed<MemberReport>(value);
      if (report && !gone.contains(member_in(name))) reports.emplace(member_in(name), *report);
    }
    const bool is_member = reports.contains(me_);
    const auto anybody = [&](MemberId member) { return !gone.contains(member); };
    if (!is_member && std::any_of(last.members.begin(), last.members.end(), anybody))
      return "it is not taken in by any";
    if (!is_member && store_->find(finished_key)) return "the job has finished";
    std::map<std::size_t, RankState> states;
    std::set<int> lost;  // ranks to which others have lost their connection
    for (const auto& [name, value] : store_->list(concat(generation_prefix(last.number), "state/")))
      if (auto state = RankState::parsed(value)) {
        lost.insert(state->lost.begin(), state->lost.end());
        states.emplace(member_in(name), std::move(*state));
      }
    std::size_t here = 0, expected = 0;
    for (std::size_t rank = 0; rank < last.members.size(); ++rank) {
      const auto member = last.members[rank];
      if (gone.contains(member)) continue;
      ++expected;
      if (reports.contains(member)) {
        // One member proposes immediately; the others propose only if it does not.
        if (here++ == 0 && member != me_ && waited_s < proposer_s) return "another one proposes it";
        continue;
      }
      // If the rank knows that its world has ended, it only has to return from its own work: wait for it.
      const auto state = states.find(rank);
      const bool ended = state != states.end() && state->second.ended;
      const double limit_s =
          lost.contains(static_cast<int>(rank)) ? options_.lost_s : options_.silent_s;
      if (ended || waited_s < limit_s)
        return concat("rank ", rank, " of generation ", last.number, " has not come out of it");
    }
    if (2 * here < expected)
      return concat("only ", here, " of the ", expected, " members of generation ", last.number,
                    " can be reached, and at least half of them are needed to go on");
    const auto fresh = newcomers(last);
    if (!is_member && fresh.size() < as_size(started_) && waited_s < options_.timeout_s / 2)
      return concat(fresh.size(), " of ", started_, " ranks have come");
    const auto next = next_generation(last, reports, fresh, options_);
    too_few_ = !next;
    if (too_few_)
      return concat("only ", pluralize(here + fresh.size(), "rank"), " left, and at least ",
                    pluralize(options_.layouts.min_replicas, "replica"), " of ",
                    options_.layouts.step_time
                        ? "a size that the model and the ranks' memory allow"
                        : pluralize(options_.tensor * options_.pipeline, "rank"),
                    " are needed; start more, or begin again from a checkpoint");
    // A process that was left out becomes a newcomer only by announcing itself again.
    for (const auto member : last.members)
      if (!reports.contains(member)) store_->remove(concat("member/", member));
    const auto key = generation_key(next->number);
    if (store_->set_unless(key, key, Fields::written(*next))) {
      store_->set(newest_key, Fields::written(next->number));
      for (const auto& [name, value] : store_->list(generation_prefix(last.number - 1)))
        store_->remove(name);
    }
    return {};
  }

  static constexpr double proposer_s = 1;  // seconds that the others wait for the first proposer
  static constexpr double newcomer_s = 1;  // seconds between a newcomer's attempts

  std::shared_ptr<KeyValueStore> store_;
  MemberId me_;
  std::string presented_;
  bool first_;
  int started_;
  ElasticOptions options_;
  std::string waits_for_{};
  bool too_few_ = false;  // there were too few ranks for the last proposal
};
}  // namespace dhp::detail
