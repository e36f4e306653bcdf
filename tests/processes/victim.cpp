// victim WHAT WHO LIMIT_S: a rank of a job that does collectives and messages in a loop, until rank WHO does something
// else in the 20th round: sleeps, exits, throws, kills or stops itself, or calls what the others do not.
#include <dhp/comm/gloo/connect.hpp>
#include <dhp/tensor/tensor.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

using namespace dhp;

void misbehave(const std::string& what, Comm<Cpu>& world, Cpu& dev) {
  auto odd = Tensor<Cpu>::zeros(dev, DType::f32, {7});
  if (what == "sleep") std::this_thread::sleep_for(std::chrono::hours(1));
  else if (what == "exit") std::_Exit(0);
  else if (what == "throw") fail("the disk is full");
  else if (what == "kill") static_cast<void>(::raise(SIGKILL));
  else if (what == "stop") static_cast<void>(::raise(SIGSTOP));
  else if (what == "shape") world.all_reduce(dev, odd.mut());
  else if (what == "order") world.barrier();
  else fail("there is no ", what);
}

void rounds(const std::string& what, int who, Comm<Cpu> world) {
  Cpu dev;
  auto part = world.split(world.rank() / 2, world.rank());
  auto x = Tensor<Cpu>::zeros(dev, DType::f32, {5});
  const int n = world.size(), me = world.rank();
  constexpr int odd = 20;
  for (int round = 0;; ++round) {
    if (round == odd && me == who) misbehave(what, world, dev);
    world.all_reduce(dev, x.mut());
    part.all_reduce(dev, x.mut());
    world.send(dev, clone(dev, x.view()), (me + 1) % n);
    world.recv(dev, x.mut(), (me + n - 1) % n);
    world.barrier();
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    check(count == 4, "victim WHAT WHO LIMIT_S");
    const auto me = ProcessRank::from_environment();
    check(me.has_value(), "no launcher has started this");
    ProcessOptions options;
    options.timeout_s = std::atof(arguments[3]);
    options.log = [](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); };
    options.stuck = [](const std::string& message) {
      std::fprintf(stderr, "error: %s (stuck)\n", message.c_str());
      std::_Exit(3);
    };
    const auto body = [&](Comm<Cpu> world) {
      rounds(arguments[1], std::atoi(arguments[2]), std::move(world));
    };
    run_process_rank(*me, connect_gloo, body, options);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.sentence().c_str());
  }
  return 1;
}
