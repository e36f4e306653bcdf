// A type without backward() is no layer.
// error: a layer lacks: Tensor<Dev> backward(Dev&, Tensor<Dev> dy, Tape<Dev>&)
#include <dhp/cpu.hpp>

using namespace dhp;

struct Same {
  Tensor<Cpu> forward(Cpu&, Tensor<Cpu> x, Tape<Cpu>&) { return x; }
#ifdef GOOD
  Tensor<Cpu> backward(Cpu&, Tensor<Cpu> dy, Tape<Cpu>&) { return dy; }
#endif
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Cpu>&) const { return in; }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
  void parameters(ParameterList<Cpu>&) const {}
};

void describe(Model<Cpu>& model) { model.add("same", Same{}); }
