// A model without replay() cannot be trained: no layer with a non-finite result could be found.
// error: model.replay(dev, step)
#include <dhp/cpu.hpp>

using namespace dhp;

struct Own {
  Tensor<Cpu> forward_backward(Cpu&, const Step<Cpu>&) { return {}; }
  Tensor<Cpu> evaluate(Cpu&, const Step<Cpu>&) { return {}; }
#ifdef GOOD
  void replay(Cpu&, const Step<Cpu>&) {}
#endif
  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
  ParameterStore<Cpu>& store();
};

using Training = Trainer<Cpu, Own>;
