// A type without finish() is no reducer.
// error: a reducer lacks ready(Range) or finish()
#include <dhp/cpu.hpp>

namespace own {

struct Nothing {};
struct Reducer {
  void ready(dhp::Range) {}
#ifdef GOOD
  void finish() {}
#endif
};
Reducer make_reducer(dhp::Cpu&, dhp::ParameterStore<dhp::Cpu>&, const dhp::Comm<dhp::Cpu>&,
                     Nothing) {
  return {};
}

}  // namespace own

auto result(dhp::Cpu& dev, dhp::ParameterStore<dhp::Cpu>& store, const dhp::Comm<dhp::Cpu>& group) {
  return dhp::detail::any_reducer(dev, store, group, own::Nothing{});
}
