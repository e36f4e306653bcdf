// Process ranks that run collectives and messages in a loop, until one rank misbehaves.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace tests {

inline void misbehave(const std::string& what, dhp::Comm<dhp::Cpu>& world, dhp::Cpu& dev) {
  const auto zeros = [&](std::int64_t count) {
    return dhp::Tensor<dhp::Cpu>::zeros(dev, dhp::DType::f32, {count});
  };
  auto odd = zeros(7);
  const auto big = zeros(3'000'000);
  if (what == "throw_in_flight")
    for (int to = 0; to < world.size(); ++to)
      if (to != world.rank()) world.send(dev, big.share(), to);
  if (what == "throw_int") throw 42;
  if (what.starts_with("throw")) dhp::fail("the disk is full");
  if (what == "sleep") std::this_thread::sleep_for(std::chrono::hours(1));
  else if (what == "exit") std::_Exit(0);
  else if (what == "kill") static_cast<void>(::raise(SIGKILL));
  else if (what == "stop") static_cast<void>(::raise(SIGSTOP));
  else if (what == "shape") world.all_reduce(dev, odd.mut());
  else if (what == "order") world.barrier();
  else dhp::fail("there is no ", what);
}

/// Rank `who` misbehaves in round 20 (counted from 0). Each all-reduce sums `elements` elements.
inline void rounds(const std::string& what, int who, dhp::Comm<dhp::Cpu> world,
                   std::int64_t elements) {
  dhp::Cpu dev;
  auto part = world.split(world.rank() / 2, world.rank());
  auto x = dhp::Tensor<dhp::Cpu>::zeros(dev, dhp::DType::f32, {elements});
  const int n = world.size(), me = world.rank();
  for (int round = 0;; ++round) {
    if (round == 20 && me == who) misbehave(what, world, dev);
    world.all_reduce(dev, x.mut());
    part.all_reduce(dev, x.mut());
    world.send(dev, dhp::clone(dev, x.view()), (me + 1) % n);
    world.recv(dev, x.mut(), (me + n - 1) % n);
    world.barrier();
  }
}

}  // namespace tests
