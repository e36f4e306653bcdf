// A type without recv() is no communicator.
// error: a communicator lacks send(Dev&, Tensor<Dev>, int, CallSite) or recv(Dev&, View<Dev>, int, CallSite)
#include <dhp/cpu.hpp>

using namespace dhp;

struct Alone {
  [[nodiscard]] int rank() const { return 0; }
  [[nodiscard]] int size() const { return 1; }
  [[nodiscard]] int send_capacity() const { return 1; }
  Event<Cpu> start(Cpu&, const Collective<Cpu>&) { return {}; }
  void send(Cpu&, const Tensor<Cpu>&, int, CallSite) {}
#ifdef GOOD
  void recv(Cpu&, View<Cpu>, int, CallSite) {}
#endif
  void barrier(CallSite) {}
  Alone split(int, int, CallSite) { return *this; }
  void abort(const std::string&) {}
  [[nodiscard]] std::string transport() const { return "nothing"; }
};

Comm<Cpu> result() { return Comm<Cpu>::of(Alone{}); }
