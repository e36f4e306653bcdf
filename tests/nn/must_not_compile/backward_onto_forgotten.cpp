// A layer that replaces the backward of its base cannot inherit a backward_onto that knows nothing of it.
// error: a layer replaces backward of its base, but not backward_onto
#include <dhp/cpu.hpp>

using namespace dhp;

struct Twice : Linear<Cpu> {
  using Linear::Linear;
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>& tape) {
    scale(dev, 2, dy.mut());
    return Linear::backward(dev, std::move(dy), tape);
  }
#ifdef GOOD
  Tensor<Cpu> backward_onto(Cpu& dev, Tensor<Cpu> dy, Tensor<Cpu> onto, Tape<Cpu>& tape) {
    scale(dev, 2, dy.mut());
    return Linear::backward_onto(dev, std::move(dy), std::move(onto), tape);
  }
#endif
};

void describe(ModelBuilder<Cpu>& build, Model<Cpu>& model) {
  model.add("twice", Twice(build, "twice", {.in = 2, .out = 2}));
}
