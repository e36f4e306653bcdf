// A type without backward() is no loss.
// error: a loss lacks: Tensor<Dev> backward(Dev&, ConstView<Dev> scales, Tape<Dev>&)
#include <dhp/cpu.hpp>

using namespace dhp;

struct Measure {
  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
  void forward(Cpu&, Tensor<Cpu>, Tape<Cpu>&, View<Cpu>) {}
#ifdef GOOD
  Tensor<Cpu> backward(Cpu&, ConstView<Cpu>, Tape<Cpu>&) { return {}; }
#endif
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
  void parameters(ParameterList<Cpu>&) const {}
};

void describe(Model<Cpu>& model) { model.loss = Measure{}; }
