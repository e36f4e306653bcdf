// A model is described for the ranks that share its layers.
// error: no matching function for call to
#include <dhp/cpu.hpp>

using namespace dhp;

void describe(Mesh<Cpu>& mesh) {
#ifdef GOOD
  ModelBuilder<Cpu> build(mesh);
#else
  ModelBuilder<Cpu> build;
#endif
  (void)Linear<Cpu>(build, "linear", {.in = 2, .out = 2});
}
