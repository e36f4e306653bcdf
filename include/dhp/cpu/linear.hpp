// Linear layers with what stands beside them, on the Cpu: the pieces. Its products are bound by arithmetic, so a pass
// over memory less would hardly be noticed.
#pragma once

#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/ops/linear.hpp>

namespace dhp {

inline bool linear_gelu_whole_on(Cpu&, ConstView<Cpu>, ConstView<Cpu>, ConstView<Cpu>, View<Cpu>,
                                 View<Cpu>) {
  return false;
}
inline bool gelu_linear_backward_whole_on(Cpu&, ConstView<Cpu>, ConstView<Cpu>, ConstView<Cpu>,
                                          View<Cpu>, View<Cpu>, double) {
  return false;
}
inline bool linear_gradients_whole_on(Cpu&, ConstView<Cpu>, ConstView<Cpu>, View<Cpu>, View<Cpu>,
                                      double) {
  return false;
}

}  // namespace dhp
