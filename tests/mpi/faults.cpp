// faults WHAT WHO LIMIT_S: in the 20th round of dhp's calls, rank WHO misbehaves: it throws, throws with messages in
// flight, stops itself, sleeps, makes another call than the others, or makes no session (absent). Each rank prints how
// it ended. If all ranks still exist, the host continues with its own MPI calls and a new session. faults levels: a
// session is refused before MPI is initialized, at a thread level that is too low, and after MPI is finalized.
#include <dhp/comm/mpi/session.hpp>
#include <tests/support/misbehaving.hpp>

#include <cstdio>

namespace {

using namespace dhp;

/// Returns "" if the host's own MPI calls, and a new session, still work.
std::string goes_on(int size) {
  const int one = 1;
  int sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (sum != size) return "the host's own sum is wrong";
  MpiSession again(MPI_COMM_WORLD, {.timeout_s = 20});
  Cpu dev;
  auto x = Tensor<Cpu>::from_host(dev, {1}, std::vector<float>{2});
  again.world().all_reduce(dev, x.mut()).wait();
  again.close();
  return x.to_host<float>(dev)[0] == 2 * static_cast<float>(size) ? "goes on" : "a wrong sum";
}

void log(int rank, const std::string& text) {
  std::printf("rank %d: %s\n", rank, text.c_str());
  std::fflush(stdout);
}

bool refused(const std::string& part) {
  try {
    const MpiSession session(MPI_COMM_WORLD);
    std::printf("not refused: %s\n", part.c_str());
  } catch (const Error& error) {
    if (error.sentence().find(part) != std::string::npos) return true;
    std::printf("refused otherwise: %s\n", error.sentence().c_str());
  }
  return false;
}

int levels(int count, char** arguments) {
  bool all = refused("MPI is not initialized: call MPI_Init_thread");
  int level = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &level);
  all = refused("MPI was initialized for MPI_THREAD_FUNNELED") && all;
  MPI_Finalize();
  all = refused("MPI has been finalized") && all;
  if (all) std::puts("all refused");
  return all ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 2) return levels(count, arguments);
  int level = 0, me = 0, size = 0;
  const std::string what = count == 4 ? arguments[1] : "";
  const int who = count == 4 ? std::atoi(arguments[2]) : 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_SERIALIZED, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm others = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, me == who ? 1 : 0, me, &others);
  try {
    if (what == "absent" && me == who) std::this_thread::sleep_for(std::chrono::hours(1));
    MpiSession session(MPI_COMM_WORLD, {.timeout_s = std::atof(arguments[3])});
    session.run([&](Comm<Cpu> world) { tests::rounds(what, who, std::move(world), 300000); });
  } catch (const Aborted& error) {
    log(me, concat("aborted: ", error.sentence()));
  } catch (const Error& error) {
    log(me, concat("failed: ", error.sentence()));
  }
  if (what == "stop" || what == "sleep" ||
      what == "absent") {  // a rank is missing: MPI calls cannot end
    MPI_Barrier(others);
    MPI_Abort(MPI_COMM_WORLD, 3);
  }
  try {
    log(me, goes_on(size));
  } catch (const Error& error) {
    log(me, concat("does not go on: ", error.sentence()));
  }
  MPI_Comm_free(&others);
  MPI_Finalize();
}
