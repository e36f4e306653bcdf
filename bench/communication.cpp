// Collectives and messages of two ranks, each in turns with what it is measured against. Ranks that are threads: the
// same number of bytes copied by std::memcpy, by both threads at once. Ranks that are processes, over Gloo and over
// MPI: the engine's own collectives and messages between the same two. communication.py starts it. Usage:
// bench_communication threads|gloo|mpi
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
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

namespace {

using namespace dhp;

constexpr int rounds = 11;

double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[rounds / 2];
}

/// The ranks take turns between the two, so that a busy machine slows both. Rank 0 prints medians.
void compare(Comm<Cpu>& world, const char* ranks, const char* operation, std::size_t bytes,
             auto&& ours, auto&& peer) {
  const auto repeats = std::clamp<std::size_t>((std::size_t{16} << 20) / bytes, 1, 16);
  const auto timed = [&](auto&& work) {
    world.barrier();
    return seconds_of([&] {
             for (std::size_t repeat = 0; repeat < repeats; ++repeat) work();
           }) /
           static_cast<double>(repeats);
  };
  std::vector<double> mine, theirs;
  for (int round = -2; round < rounds; ++round) {  // two to warm up
    const double peer_s = timed(peer), our_s = timed(ours);
    if (round < 0) continue;
    mine.push_back(our_s);
    theirs.push_back(peer_s);
  }
  if (world.rank() != 0) return;
  std::printf("%s %s %zu %.9f %.9f\n", ranks, operation, bytes, median(mine), median(theirs));
  std::fflush(stdout);
}

/// Of a buffer, in bytes.
constexpr std::size_t sizes[] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
Tensor<Cpu> floats(Cpu& dev, std::size_t bytes) {
  return Tensor<Cpu>::zeros(dev, DType::f32, {static_cast<std::int64_t>(bytes / sizeof(float))});
}

/// What is sent goes to the other rank and comes back; half of that is a message.
void there_and_back(int rank, auto&& send, auto&& receive) {
  if (rank == 0) send();
  receive();
  if (rank != 0) send();
}

/// The whole of a buffer is what a rank reads and writes in an all_reduce in place, and in an all_gather into it; in a
/// reduce_scatter it reads all and writes half.
void compare_threads() {
  std::barrier<> meeting(2);
  run_ranks(2, [&](Comm<Cpu> world) {
    Cpu dev;
    std::vector<std::size_t> all(std::begin(sizes), std::end(sizes));
    all.push_back(100'000'000);
    for (const auto bytes : all) {
      auto whole = floats(dev, bytes), other = floats(dev, bytes), half = floats(dev, bytes / 2);
      const auto sent = floats(dev, bytes);
      const auto copies = [&](std::size_t copied) {
        return [&, copied] {
          meeting.arrive_and_wait();
          std::memcpy(other.mut().bytes(), whole.view().bytes(), copied);
          meeting.arrive_and_wait();
        };
      };
      compare(
          world, "threads", "all_reduce", bytes, [&] { world.all_reduce(dev, whole.mut()).wait(); },
          copies(bytes));
      compare(
          world, "threads", "reduce_scatter", bytes,
          [&] { world.reduce_scatter(dev, whole.view(), half.mut()).wait(); },
          copies(bytes / 4 * 3));
      compare(
          world, "threads", "all_gather", bytes,
          [&] { world.all_gather(dev, half.view(), whole.mut()).wait(); }, copies(bytes));
      const int rank = world.rank();
      compare(
          world, "threads", "send_recv", bytes,
          [&] {
            there_and_back(
                rank, [&] { world.send(dev, sent.share(), 1 - rank); },
                [&] { world.recv(dev, other.mut(), 1 - rank); });
          },
          [&] {  // one message is under way at a time
            for (int turn = 0; turn < 2; ++turn) {
              if (turn == rank) std::memcpy(other.mut().bytes(), sent.view().bytes(), bytes);
              meeting.arrive_and_wait();
            }
          });
    }
  });
}

int compare_with_gloo() {
#ifdef DHP_HAS_GLOO
  const auto me = ProcessRank::from_environment();
  check(me && me->size == 2, "two processes are compared, started with RANK and WORLD_SIZE");
  std::shared_ptr<ProcessWatchdog> met;
  const auto connect = [&](const std::shared_ptr<ProcessWatchdog>& world, const ProcessRank& rank,
                           const ProcessOptions& options) {
    met = world;
    return connect_gloo(world, rank, options);
  };
  run_process_rank(*me, connect,
                   [&](Comm<Cpu> world) {
                     Cpu dev;
                     bench::Gloo gloo(met);
                     const int rank = world.rank();
                     for (const auto bytes : sizes) {
                       const auto count = bytes / sizeof(float);
                       auto whole = floats(dev, bytes), half = floats(dev, bytes / 2);
                       const auto sent = floats(dev, bytes);
                       auto* const data = whole.mut().data<float>();
                       compare(
                           world, "gloo", "all_reduce", bytes,
                           [&] { world.all_reduce(dev, whole.mut()).wait(); },
                           [&] { gloo.all_reduce(data, count); });
                       const auto scatter = gloo.reduce_scatter(data, count);
                       compare(
                           world, "gloo", "reduce_scatter", bytes,
                           [&] { world.reduce_scatter(dev, whole.view(), half.mut()).wait(); },
                           [&] { scatter->run(); });
                       compare(
                           world, "gloo", "all_gather", bytes,
                           [&] { world.all_gather(dev, half.view(), whole.mut()).wait(); },
                           [&] { gloo.all_gather(half.mut().data<float>(), count / 2, data); });
                       compare(
                           world, "gloo", "send_recv", bytes,
                           [&] {
                             there_and_back(
                                 rank, [&] { world.send(dev, sent.share(), 1 - rank); },
                                 [&] { world.recv(dev, whole.mut(), 1 - rank); });
                           },
                           [&] {
                             there_and_back(
                                 rank,
                                 [&] { gloo.send(sent.view().data<float>(), count, 1 - rank); },
                                 [&] { gloo.recv(data, count, 1 - rank); });
                           });
                     }
                   },
                   {.timeout_s = 60});
  return 0;
#else
  std::puts("skipped: built without Gloo (Debian: libgloo-dev, libssl-dev)");
  return 77;
#endif
}

#ifdef DHP_HAS_MPI
void compare_with_mpi() {
  MpiSession session(MPI_COMM_WORLD, {.timeout_s = 60});
  auto world = session.world();
  check(world.size() == 2, "two ranks are compared, started by mpirun -n 2");
  Cpu dev;
  const int rank = world.rank(), other = 1 - rank;
  for (const auto bytes : sizes) {
    const int count = static_cast<int>(bytes / sizeof(float));
    auto whole = floats(dev, bytes), half = floats(dev, bytes / 2);
    const auto sent = floats(dev, bytes);
    const auto* const message = sent.view().data<float>();
    auto* const data = whole.mut().data<float>();
    auto* const part = half.mut().data<float>();
    compare(
        world, "mpi", "all_reduce", bytes, [&] { world.all_reduce(dev, whole.mut()).wait(); },
        [&] { MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    compare(
        world, "mpi", "reduce_scatter", bytes,
        [&] { world.reduce_scatter(dev, whole.view(), half.mut()).wait(); },
        [&] {
          MPI_Reduce_scatter_block(data, part, count / 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        });
    compare(
        world, "mpi", "all_gather", bytes,
        [&] { world.all_gather(dev, half.view(), whole.mut()).wait(); },
        [&] {
          MPI_Allgather(part, count / 2, MPI_FLOAT, data, count / 2, MPI_FLOAT, MPI_COMM_WORLD);
        });
    const auto raw = [&] {
      there_and_back(
          rank, [&] { MPI_Send(message, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD); },
          [&] { MPI_Recv(data, count, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); });
    };
    compare(
        world, "mpi", "send_recv", bytes,
        [&] {
          there_and_back(
              rank, [&] { world.send(dev, sent.share(), other); },
              [&] { world.recv(dev, whole.mut(), other); });
        },
        raw);
  }
}
#endif

int compare_mpi([[maybe_unused]] int& argc, [[maybe_unused]] char**& argv) {
#ifdef DHP_HAS_MPI
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  compare_with_mpi();
  MPI_Finalize();
  return 0;
#else
  std::puts("skipped: built without MPI (Debian: libopenmpi-dev, libssl-dev)");
  return 77;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  try {
    if (what == "threads") return compare_threads(), 0;
    if (what == "gloo") return compare_with_gloo();
    if (what == "mpi") return compare_mpi(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: bench_communication threads|gloo|mpi\n");
  return 2;
}
