// Only accumulate() writes a gradient: with exact sums, any other write would be lost.
// error: could not convert
#include <dhp/cpu.hpp>

using namespace dhp;

void backward(Cpu& dev, ParameterState<Cpu>& weight, const Tensor<Cpu>& dy) {
#ifdef GOOD
  weight.accumulate(
      dev, [&](View<Cpu> gradient, double beta) { column_sums(dev, dy.view(), gradient, beta); });
#else
  column_sums<Cpu>(dev, dy.view(), weight.gradient, 1.0);
#endif
}
