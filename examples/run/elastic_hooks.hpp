// How one rank's training and its elastic job speak with each other.
#pragma once

#include <functional>

namespace examples {

/// How a run has ended.
enum class RunEnd {
  done,
  stopped,  ///< saved before its last step, as a signal asked
  changes,  ///< its ranks are to change: all have done the same steps
};

/// Questions of a run in one generation to its elastic job.
struct ElasticHooks {
  bool first = true;                    ///< the first generation
  bool has_state = false;               ///< somewhere among the ranks: none is loaded or drawn
  std::function<bool()> change_wanted;  ///< all ranks are to leave after this step
  std::function<bool()>
      job_goes_on;  ///< with other ranks, after all were asked to stop. Collective
  std::function<void()> check_newest;  ///< throws where another generation has begun
};

}  // namespace examples
