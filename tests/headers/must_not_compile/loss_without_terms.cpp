// A type that does not name its terms is no loss.
// error: a loss lacks: std::vector<std::string> term_names() const
#include <dhp/cpu.hpp>

using namespace dhp;

struct Nothing {
#ifdef GOOD
  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
#endif
  void forward(Cpu&, Tensor<Cpu>, Tape<Cpu>&, View<Cpu>) {}
  Tensor<Cpu> backward(Cpu&, ConstView<Cpu>, Tape<Cpu>&) { return {}; }
  [[nodiscard]] double flops(const Shape&, const MicroBatch<Cpu>&) const { return 0; }
  void parameters(ParameterList<Cpu>&) const {}
};

void describe(Model<Cpu>& model) { model.loss = Nothing{}; }
