// Measures collectives and messages between two ranks, in turns with a peer. For ranks that are threads the peer is
// std::memcpy of the same number of bytes by both threads at once. For ranks that are processes, over Gloo or MPI, the
// peer is the library's own collectives and messages between the same two processes. communication.py starts this
// program.
#include <bench/program.hpp>
#include <dhp/comm/launch.hpp>
#include <dhp/device/cpu.hpp>
#include <dhp/tensor/tensor.hpp>
#ifdef DHP_HAS_GLOO
#include <bench/peer_gloo.hpp>
#include <dhp/comm/gloo/connect.hpp>
#endif
#ifdef DHP_HAS_MPI
#include <dhp/comm/mpi/session.hpp>
#endif

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

namespace {

using namespace dhp;

constexpr int rounds = 11;

/// Times `ours` and `peer` in turns, so that other load slows both. Rank 0 prints the medians.
void compare(Comm<Cpu>& world, const char* ranks, const char* operation, std::size_t bytes,
             auto&& ours, auto&& peer) {
  const auto repeats = std::clamp<std::size_t>((std::size_t{16} << 20) / bytes, 1, 16);
  const auto timed = [&](auto&& work) {
    world.barrier();
    return bench::seconds_of([&] {
             for (std::size_t repeat = 0; repeat < repeats; ++repeat) work();
           }) /
           static_cast<double>(repeats);
  };
  std::vector<double> mine, theirs;
  for (int round = -2; round < rounds; ++round) {  // rounds -2 and -1 warm up
    const double peer_s = timed(peer), our_s = timed(ours);
    if (round < 0) continue;
    mine.push_back(our_s);
    theirs.push_back(peer_s);
  }
  if (world.rank() != 0) return;
  std::printf("%s %s %zu %.9f %.9f\n", ranks, operation, bytes, bench::median(mine),
              bench::median(theirs));
  std::fflush(stdout);
}

/// Buffer sizes, in bytes.
constexpr std::size_t sizes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
Tensor<Cpu> floats(Cpu& dev, std::size_t bytes) {
  return Tensor<Cpu>::zeros(dev, DType::f32, {static_cast<std::int64_t>(bytes / sizeof(float))});
}

/// Sends a buffer to the other rank and back; a message takes half of this time.
void there_and_back(int rank, auto&& send, auto&& receive) {
  if (rank == 0) send();
  receive();
  if (rank != 0) send();
}

/// A rank's buffers, as the peer sees them.
struct Buffers {
  float *whole, *other, *half;
  const float* sent;
  std::size_t count;  ///< elements of each buffer but `half`
};
/// The peer's operations on the same buffers.
struct Peer {
  std::function<void()> all_reduce, reduce_scatter, all_gather, message;
};

/// Compares all operations at all sizes with those of the Peer that peer_of(buffers) returns.
void compare_all(Comm<Cpu>& world, const char* ranks, auto peer_of) {
  Cpu dev;
  const int rank = world.rank();
  for (const auto bytes : sizes) {
    auto whole = floats(dev, bytes), other = floats(dev, bytes), half = floats(dev, bytes / 2);
    const auto sent = floats(dev, bytes);
    const Peer peer = peer_of(Buffers{whole.mut().data<float>(), other.mut().data<float>(),
                                      half.mut().data<float>(), sent.view().data<float>(),
                                      bytes / sizeof(float)});
    const auto with = [&](const char* operation, auto&& ours, const std::function<void()>& theirs) {
      compare(world, ranks, operation, bytes, ours, theirs);
    };
    with(
        "all_reduce", [&] { world.all_reduce(dev, whole.mut()).wait(); }, peer.all_reduce);
    with(
        "reduce_scatter", [&] { world.reduce_scatter(dev, whole.view(), half.mut()).wait(); },
        peer.reduce_scatter);
    with(
        "all_gather", [&] { world.all_gather(dev, half.view(), whole.mut()).wait(); },
        peer.all_gather);
    with(
        "send_recv",
        [&] {
          there_and_back(
              rank, [&] { world.send(dev, sent.share(), 1 - rank); },
              [&] { world.recv(dev, other.mut(), 1 - rank); });
        },
        peer.message);
  }
}

/// Compares with std::memcpy of as many bytes as an operation moves. An all_reduce in place and an all_gather read and
/// write a whole buffer; a reduce_scatter reads a whole buffer and writes half of one.
void compare_threads() {
  std::barrier<> meeting(2);
  run_ranks(2, [&](Comm<Cpu> world) {
    compare_all(world, "threads", [&meeting, rank = world.rank()](const Buffers& of) {
      const auto copies = [&meeting, of](std::size_t copied) {
        return [&meeting, of, copied] {
          meeting.arrive_and_wait();
          std::memcpy(of.other, of.whole, copied);
          meeting.arrive_and_wait();
        };
      };
      const auto bytes = of.count * sizeof(float);
      return Peer{copies(bytes), copies(bytes / 4 * 3), copies(bytes), [&meeting, of, bytes, rank] {
                    for (int turn = 0; turn < 2; ++turn) {  // one message at a time is in flight
                      if (turn == rank) std::memcpy(of.other, of.sent, bytes);
                      meeting.arrive_and_wait();
                    }
                  }};
    });
  });
}

void compare_with_gloo() {
#ifdef DHP_HAS_GLOO
  const auto me = ProcessRank::from_environment();
  check(me && me->size == 2, "two processes are compared, started with RANK and WORLD_SIZE");
  std::shared_ptr<ProcessWatchdog> met;
  const auto connect = [&](const std::shared_ptr<ProcessWatchdog>& world, const ProcessRank& rank,
                           const ProcessOptions& options) {
    met = world;
    return connect_gloo(world, rank, options);
  };
  const auto body = [&](Comm<Cpu> world) {
    bench::Gloo engine(met);
    compare_all(world, "gloo", [&engine, rank = world.rank()](const Buffers& of) {
      const std::shared_ptr scatter = engine.reduce_scatter(of.whole, of.count);
      return Peer{[&engine, of] { engine.all_reduce(of.whole, of.count); },
                  [scatter] { scatter->run(); },
                  [&engine, of] { engine.all_gather(of.half, of.count / 2, of.whole); },
                  [&engine, of, rank] {
                    there_and_back(
                        rank, [&] { engine.send(of.sent, of.count, 1 - rank); },
                        [&] { engine.recv(of.other, of.count, 1 - rank); });
                  }};
    });
  };
  run_process_rank(*me, connect, body, {.timeout_s = 60});
#else
  std::puts("skipped: built without Gloo (Debian: libgloo-dev, libssl-dev)");
#endif
}

#ifdef DHP_HAS_MPI
void compare_with_mpi() {
  MpiSession session(MPI_COMM_WORLD, {.timeout_s = 60});
  auto world = session.world();
  check(world.size() == 2, "two ranks are compared, started by mpirun -n 2");
  const auto all = MPI_COMM_WORLD;
  compare_all(world, "mpi", [all, rank = world.rank()](const Buffers& of) {
    const int count = static_cast<int>(of.count), other = 1 - rank;
    return Peer{
        [=] { MPI_Allreduce(MPI_IN_PLACE, of.whole, count, MPI_FLOAT, MPI_SUM, all); },
        [=] { MPI_Reduce_scatter_block(of.whole, of.half, count / 2, MPI_FLOAT, MPI_SUM, all); },
        [=] { MPI_Allgather(of.half, count / 2, MPI_FLOAT, of.whole, count / 2, MPI_FLOAT, all); },
        [=] {
          there_and_back(
              rank, [&] { MPI_Send(of.sent, count, MPI_FLOAT, other, 0, all); },
              [&] { MPI_Recv(of.other, count, MPI_FLOAT, other, 0, all, MPI_STATUS_IGNORE); });
        }};
  });
}
#endif

void compare_mpi([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv) {
#ifdef DHP_HAS_MPI
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  compare_with_mpi();
  MPI_Finalize();
#else
  std::puts("skipped: built without MPI (Debian: libopenmpi-dev, libssl-dev)");
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  const bool known = what == "threads" || what == "gloo" || what == "mpi";
  return bench::run_main(known, "bench_communication threads|gloo|mpi", [&] {
    if (what == "threads") compare_threads();
    else if (what == "gloo") compare_with_gloo();
    else compare_mpi(argc, argv);
  });
}
