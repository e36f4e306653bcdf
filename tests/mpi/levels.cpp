// levels: an MpiSession is refused before MPI is there, at a thread level that is too low, and after MPI has gone.
#include <dhp/comm/mpi/session.hpp>

#include <cstdio>
#include <string>

namespace {

int wrong = 0;

void expect_refused(const std::string& part) {
  try {
    const dhp::MpiSession session(MPI_COMM_WORLD);
    std::printf("not refused: %s\n", part.c_str());
  } catch (const dhp::Error& error) {
    if (error.sentence().find(part) != std::string::npos) return;
    std::printf("refused otherwise: %s\n", error.sentence().c_str());
  }
  ++wrong;
}

}  // namespace

int main(int count, char** arguments) {
  expect_refused("MPI is not initialised: call MPI_Init_thread");
  int level = 0;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_FUNNELED, &level);
  expect_refused("MPI was initialised for MPI_THREAD_FUNNELED");
  MPI_Finalize();
  expect_refused("MPI has been finalised");
  if (wrong == 0) std::puts("all refused");
  return wrong == 0 ? 0 : 1;
}
