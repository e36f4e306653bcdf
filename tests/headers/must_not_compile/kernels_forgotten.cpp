// Training on the Cpu needs its kernels.
// error: the kernels of the Cpu are missing: include dhp/cpu.hpp, not dhp/dhp.hpp alone
#ifdef GOOD
#include <dhp/cpu.hpp>
#else
#include <dhp/dhp.hpp>
#endif

using namespace dhp;

void describe(Model<Cpu>& model) { model.add("gelu", gelu<Cpu>()); }
