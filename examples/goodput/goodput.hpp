// Goodput: the share of its time that a job of many ranks spends on steps that count, if ranks fail, slow down and come
// back. It is found by an event simulation, and by the closed form for a job that restarts from checkpoints.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace examples {

/// Returns the interval that minimizes the time to finish (Daly 2006, "A higher order estimate of the optimum
/// checkpoint interval"); its first term is Young's of 1974.
[[nodiscard]] inline double daly_interval(double save, double failure) {
  if (save >= 2 * failure) return failure;
  const double x = save / (2 * failure);
  return std::sqrt(2 * save * failure) * (1 + std::sqrt(x) / 3 + x / 9) - save;
}

/// All times are in seconds.
struct GoodputOptions {
  int ranks = 16384;
  int ranks_per_replica = 8;  ///< a replica stops if it loses one of its ranks
  double step = 10;           ///< time of a step with all ranks at full speed
  double duration = 30 * 86400.;
  double rank_failure = 50000 * 3600.;  ///< mean time between failures of one rank
  double repair = 6 * 3600.;            ///< time until a broken rank can be used again
  int spares = 64;
  double interval = 0;   ///< work between two checkpoints; 0: the best, by Daly
  double save = 30;      ///< time that a checkpoint stops the steps
  bool elastic = false;  ///< other replicas continue without the step in progress; else all restart
  double restart = 600, resize = 20;  ///< times of a restart and of a resize
  double slow_every = 0;              ///< mean time until a rank becomes slow; 0: never
  double slow_for = 1800,
         slow_factor = 1.3;  ///< mean length of a slowdown, and factor on a step's time
  std::uint64_t seed = 1;

  /// Returns the mean time between two failures of any rank.
  [[nodiscard]] double failure() const { return rank_failure / ranks; }
  [[nodiscard]] double best_interval() const {
    return std::max(step, daly_interval(save, failure()));
  }
  void check_sizes() const {
    dhp::check(ranks % ranks_per_replica == 0, "replicas of ", ranks_per_replica,
               " ranks do not add up to ", ranks, ": give other --ranks or --ranks-per-replica");
    const double failures = std::round(duration / failure());
    const double slow = slow_every > 0 ? std::round(duration * ranks / (slow_every + slow_for)) : 0;
    const double saves = std::round(duration / (std::max(step, interval) + save));
    dhp::check(failures + slow + saves <= 3e5, "the simulation of ", duration / 86400,
               " days with ", failures, " failures, ", slow, " slow ranks and ", saves,
               " checkpoints takes too long: give fewer --days");
  }
};

/// Shares of the whole time, which add up to 1.
struct Goodput {
  double useful = 0;  ///< steps that count, at full speed
  double slow = 0;    ///< extra time of those steps with slow or fewer ranks
  double lost = 0;    ///< steps that were repeated or not finished
  double saving = 0, stopped = 0;
  int failures = 0;
  double interval = 0;  ///< work between two checkpoints, in whole steps
};

/// Returns the useful share of a job that restarts, with failures also during saves and restarts (Daly 2006).
[[nodiscard]] inline double daly_goodput(double interval, double save, double restart,
                                         double failure) {
  return interval /
         (failure * std::exp(restart / failure) * std::expm1((interval + save) / failure));
}

class GoodputSimulation {
 public:
  explicit GoodputSimulation(const GoodputOptions& options) : of_(options), random_(of_.seed) {
    if (of_.interval == 0) of_.interval = of_.best_interval();
    spares_ = of_.spares;
  }

  [[nodiscard]] Goodput run() {
    for (int rank = 0; rank < of_.ranks; ++rank) {
      after(of_.rank_failure, What::failure, rank);
      if (of_.slow_every > 0) after(of_.slow_every, What::slow, rank);
    }
    const auto steps_until_save = std::max<std::int64_t>(1, std::llround(of_.interval / of_.step));
    while (now_ < of_.duration) {
      if (missing() >= replicas() || (missing() > 0 && !of_.elastic)) {  // waits for enough ranks
        (void)spend(events_.top().at - now_, found_.stopped);
      } else if (stop_ > 0) {
        if (spend(stop_, found_.stopped)) stop_ = 0;
      } else if (unsaved_ >= steps_until_save) {
        if (spend(of_.save, found_.saving)) keep();
      } else {
        work(steps_until_save - unsaved_);
      }
    }
    keep();
    for (double* share :
         {&found_.useful, &found_.slow, &found_.lost, &found_.saving, &found_.stopped})
      *share /= now_;
    found_.interval = static_cast<double>(steps_until_save) * of_.step;
    return found_;
  }

 private:
  enum class What { failure, repaired, slow, fast };
  struct Event {
    double at;
    What what;
    int rank;
    bool operator>(const Event& other) const { return at > other.at; }
  };

  void after(double mean, What what, int rank) {
    events_.push({now_ + std::exponential_distribution<double>(1 / mean)(random_), what, rank});
  }
  [[nodiscard]] int replicas() const { return of_.ranks / of_.ranks_per_replica; }
  /// Returns the number of stopped replicas, one per missing rank: broken ranks are rarely of the same replica.
  [[nodiscard]] int missing() const { return std::max(0, -spares_); }
  /// Draws whether a failure hits a missing rank, which cannot fail again.
  [[nodiscard]] bool is_of_empty_place() {
    return spares_ < 0 && std::uniform_int_distribution(1, of_.ranks)(random_) <= -spares_;
  }
  [[nodiscard]] double step_now() const {
    const double fewer = static_cast<double>(replicas()) / (replicas() - missing());
    return of_.step * fewer * (slow_ > 0 ? of_.slow_factor : 1);
  }

  /// Lets this time pass, or only the time until a rank fails, and adds it to a share; returns whether no rank failed.
  [[nodiscard]] bool spend(double length, double& share) {
    const double begin = now_, end = now_ + length;
    const int failures = found_.failures;
    while (events_.top().at <= end && found_.failures == failures) take_event();
    const bool passes = found_.failures == failures;
    if (passes) now_ = end;
    share += now_ - begin;
    return passes;
  }
  /// Does the steps that end before the next event, and then the step during which it happens; at most `most` steps.
  void work(std::int64_t most) {
    const double length = step_now(), until_event = events_.top().at - now_;
    const auto steps = std::min(most, static_cast<std::int64_t>(until_event / length));
    const auto done = [&](std::int64_t count) {
      unsaved_ += count;
      unsaved_time_ += static_cast<double>(count) * length;
    };
    done(steps);
    now_ += static_cast<double>(steps) * length;
    if (steps == most) return;
    double begun = 0;
    if (spend(length, begun)) done(1);
    else found_.lost += begun;
  }
  void keep() {
    const double useful = static_cast<double>(unsaved_) * of_.step;
    found_.useful += useful;
    found_.slow += std::max(0.0, unsaved_time_ - useful);
    unsaved_ = 0;
    unsaved_time_ = 0;
  }

  void lose(int rank) {
    ++found_.failures;
    const bool survives =
        of_.elastic && replicas() - missing() > 1;  // another replica has the state
    --spares_;
    if (of_.repair > 0) after(of_.repair, What::repaired, rank);
    else ++spares_;
    if (survives) {
      stop_ = of_.resize;
    } else {
      found_.lost += std::exchange(unsaved_time_, 0);
      unsaved_ = 0;
      stop_ = of_.restart;
    }
  }
  void take_event() {
    const auto event = events_.top();
    events_.pop();
    now_ = event.at;
    switch (event.what) {
      case What::failure:
        if (!is_of_empty_place()) lose(event.rank);
        after(of_.rank_failure, What::failure, event.rank);
        break;
      case What::repaired:
        if (++spares_ <= 0 && of_.elastic) stop_ = std::max(stop_, of_.resize);  // it rejoins
        break;
      case What::slow:
        ++slow_;
        after(of_.slow_for, What::fast, event.rank);
        break;
      case What::fast:
        --slow_;
        after(of_.slow_every, What::slow, event.rank);
        break;
    }
  }

  GoodputOptions of_;
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_ = 0, stop_ = 0;
  int spares_ = 0;  // below 0: the number of missing ranks
  int slow_ = 0;
  std::int64_t unsaved_ = 0;  // steps since the last checkpoint
  double unsaved_time_ = 0;
  Goodput found_;
};

}  // namespace examples
