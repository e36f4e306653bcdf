// dhp's layers have a backward_onto that knows nothing of another backward, so deriving from them is an error.
// error: cannot derive from
#include <dhp/cpu.hpp>

using namespace dhp;

#ifdef GOOD
struct Twice {
  Linear<Cpu> linear;
#else
struct Twice : Linear<Cpu> {
#endif
};
