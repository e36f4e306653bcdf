// What every PeerTransport has to do for PeerComm: collectives, messages, and ends that name who is to blame.
#pragma once

#include <tests/comm/process_ranks.hpp>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

namespace tests {

inline constexpr double patient_s = 60;

/// Connects the ranks of a world.
using MakePeers = std::function<PeerComm(const std::shared_ptr<ProcessWorld>&)>;

/// To be called once, by a test case of its own: it has subcases.
void check_peers(const MakePeers& make);

/// That bytes come where they belong, between so many ranks: a part of the above for other settings.
void check_moves(const MakePeers& make, int ranks);

/// check_one(world, dev) says what is wrong on a rank, of worlds that are expected to last.
void on_worlds_of(const MakePeers& make, std::initializer_list<int> sizes,
                  const std::function<std::string(Comm<Cpu>&, Cpu&)>& check_one);

inline Tensor<Cpu> zeros(Cpu& dev, std::int64_t count) {
  return Tensor<Cpu>::zeros(dev, DType::f32, Shape{count});
}

}  // namespace tests
