// meet_over_mpi(): the store by which the ranks of a communicator of MPI watch over each other. Rank 0 holds it and tells
// the others by MPI its address and a secret. From then on it needs no MPI. Needs MPI and OpenSSL to build.
#pragma once

#include <dhp/comm/meet/tcp_store.hpp>
#include <dhp/comm/mpi/context.hpp>

#include <mpi.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace dhp::comm {

/// A text of each rank, at all of them; of a long one the beginning. Collective.
[[nodiscard]] inline std::vector<std::string> texts_of_all(MpiContext& comm,
                                                           const std::string& mine) {
  constexpr int width = 1024;
  const auto size = static_cast<std::size_t>(comm.size());
  // Its first part is this rank's own.
  const auto memory = std::make_shared<std::vector<char>>((size + 1) * width);
  std::copy_n(mine.begin(), std::min<std::size_t>(mine.size(), width - 1), memory->begin());
  char* const all = memory->data() + width;
  MPI_Request request = MPI_REQUEST_NULL;
  comm.call([&] {
    check_mpi(MPI_Iallgather(memory->data(), width, MPI_CHAR, all, width, MPI_CHAR, comm.comm(),
                             &request),
              "MPI_Iallgather");
  });
  comm.finish(request, "MPI_Iallgather", memory);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < size; ++rank) texts.emplace_back(all + rank * width);
  return texts;
}

/// Collective: all ranks return, or all throw. address: of rank 0; empty: found out. connect_s: to reach it.
[[nodiscard]] inline std::shared_ptr<KeyValueStore> meet_over_mpi(MpiContext& comm,
                                                                  const std::string& address,
                                                                  double connect_s) {
  const auto hosts = texts_of_all(comm, host_name());
  RendezvousOptions options{.rank = comm.rank(),
                            .size = comm.size(),
                            .job = "session",
                            .timeout_s = connect_s,
                            .operation_timeout_s = std::min(10.0, connect_s),
                            .ports = 1};
  std::shared_ptr<KeyValueStore> store;
  std::string invitation;
  if (comm.rank() == 0) {
    try {
      const auto other = std::find_if(hosts.begin(), hosts.end(),
                                      [&](const auto& host) { return host != hosts.front(); });
      options.master = !address.empty()       ? address
                       : other == hosts.end() ? "127.0.0.1"
                                              : address_towards(*other);
      options.secret = hex(nonce());
      auto server = std::make_shared<TcpStoreServer>(options);
      invitation = concat(server->port(), " ", options.secret, " ", options.master);
      store = std::move(server);
    } catch (const Error& error) {
      invitation = concat("rank 0 has no address for the other ranks: ", error.sentence(),
                          "; MpiSessionOptions::address can name one");
    }
  }
  invitation = texts_of_all(comm, invitation).front();
  const auto first = invitation.find(' '), second = invitation.find(' ', first + 1);
  check(invitation.find_first_not_of("0123456789") == first, invitation);
  options.port = std::stoi(invitation.substr(0, first));
  options.secret = invitation.substr(first + 1, second - first - 1);
  options.master = invitation.substr(second + 1);

  std::string problem;
  try {
    if (comm.rank() != 0) store = std::make_shared<TcpStore>(options);
  } catch (const Error& error) {
    problem = error.sentence();
  }
  const auto problems = texts_of_all(comm, problem);
  check(problem.empty(), problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    check(problems[rank].empty(), "rank ", rank, " cannot reach rank 0 at ",
          HostPort{options.master, options.port},
          "; MpiSessionOptions::address can name another address of rank 0");
  return store;
}

}  // namespace dhp::comm
