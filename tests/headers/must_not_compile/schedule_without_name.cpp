// A type without a name is no schedule.
// error: schedule.name
#include <dhp/cpu.hpp>

using namespace dhp;

struct Idle {
#ifdef GOOD
  static constexpr const char* name = "idle";
#endif
  [[nodiscard]] std::vector<Action> actions(int, int, int, int) const { return {}; }
};

AnySchedule result() { return AnySchedule(Idle{}); }
