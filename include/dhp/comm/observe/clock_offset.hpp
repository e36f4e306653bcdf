// clock_offset: how far a rank's clock is ahead of rank 0's, so that times of several machines can stand side by side.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/tensor/tensor.hpp>

#include <vector>

namespace dhp {

/// Of one rank's clock to rank 0's.
struct ClockOffset {
  double ahead_s = 0;       ///< of rank 0's
  double round_trip_s = 0;  ///< of the shortest trip; ahead_s is wrong by at most half of it
};

/// now(): a clock that runs on all ranks at the same rate, in seconds. Collective. Of several round trips the shortest
/// counts, and its middle is taken for the time of the answer (RFC 5905, section 8). Rank 0's is zero.
template <class Dev, class Now>
[[nodiscard]] ClockOffset clock_offset(Dev& dev, Comm<Dev>& comm, Now now,
                                       CallSite where = CallSite::current()) {
  constexpr int trips = 8;
  const auto asked = Tensor<Dev>::zeros(dev, DType::f64, Shape{1});
  auto message = Tensor<Dev>::zeros(dev, DType::f64, Shape{1});
  ClockOffset best;
  for (int rank = 1; rank < comm.size(); ++rank)
    for (int trip = 0; trip < trips; ++trip)
      if (comm.rank() == 0) {
        comm.recv(dev, message.mut(), rank, where);
        dev.synchronize();
        auto answer = Tensor<Dev>::from_host(dev, Shape{1}, std::vector<double>{now()});
        comm.send(dev, std::move(answer), rank, where);
      } else if (comm.rank() == rank) {
        const double start_s = now();
        comm.send(dev, asked.share(), 0, where);
        comm.recv(dev, message.mut(), 0, where);
        const double zero_s = message.template to_host<double>(dev)[0];
        const double end_s = now();
        if (trip == 0 || end_s - start_s < best.round_trip_s)
          best = {(start_s + end_s) / 2 - zero_s, end_s - start_s};
      }
  return best;
}

}  // namespace dhp
