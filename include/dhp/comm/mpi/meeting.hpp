// meet_over_mpi(): the store by which the ranks of a communicator of MPI watch over each other. Rank 0 holds it, and
// tells the others by MPI where it is and what they prove by that they belong to it. From then on it does without
// MPI: a rank is heard while the host is in a call of MPI itself, or in none for an hour. Needs MPI and OpenSSL.
#pragma once

#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/meet/crypto.hpp>
#include <dhp/comm/meet/tcp_store.hpp>
#include <dhp/comm/mpi/context.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace dhp::comm {

inline constexpr std::size_t longest_host_name = 256;
using HostName = std::array<char, longest_host_name>;

/// What rank 0 tells all.
struct MpiInvitation {
  char problem[1024] = "";  // empty: none
  char address[longest_host_name] = "";
  char secret[64] = "";
  int port = 0;
};
static_assert(std::is_trivially_copyable_v<MpiInvitation>);

template <std::size_t room>
void write_text(char (&to)[room], const std::string& text) {
  const auto length = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

/// Rank 0's address for the others: of the way to one on another machine, if there is any.
[[nodiscard]] inline std::string address_for(const std::vector<HostName>& hosts) {
  for (const auto& host : hosts)
    if (std::strcmp(host.data(), hosts.front().data()) != 0) return address_towards(host.data());
  return "127.0.0.1";
}

/// On rank 0, of each rank.
[[nodiscard]] inline std::shared_ptr<std::vector<HostName>> gather_host_names(MpiContext& comm) {
  struct Memory {
    HostName mine{};
    std::vector<HostName> all{};
  };
  const auto memory = std::make_shared<Memory>();
  const auto name = host_name();
  std::copy_n(name.begin(), std::min(name.size(), longest_host_name - 1), memory->mine.begin());
  memory->all.resize(static_cast<std::size_t>(comm.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  comm.call([&] {
    check_mpi(MPI_Igather(memory->mine.data(), longest_host_name, MPI_CHAR, memory->all.data(),
                          longest_host_name, MPI_CHAR, 0, comm.comm(), &request),
              "MPI_Igather");
  });
  comm.finish(request, "MPI_Igather", memory);
  return {memory, &memory->all};
}

/// Collective. address: of rank 0, at which the others reach it; empty: found out. connect_s: for the others to reach
/// it. All ranks return, or all throw.
[[nodiscard]] inline std::shared_ptr<KeyValueStore> meet_over_mpi(
    MpiContext& comm, const std::string& address, double connect_s) {
  const auto hosts = gather_host_names(comm);
  const auto invitation = std::make_shared<MpiInvitation>();
  std::shared_ptr<KeyValueStore> store;
  const std::string job = "session";
  if (comm.rank() == 0) {
    try {
      const auto secret = hex(nonce());
      const auto host = address.empty() ? address_for(*hosts) : address;
      auto server = std::make_shared<TcpStoreServer>(RendezvousOptions{
          .size = comm.size(), .master = host, .job = job, .secret = secret, .ports = 1});
      write_text(invitation->address, host);
      write_text(invitation->secret, secret);
      invitation->port = server->port();
      store = std::move(server);
    } catch (const Error& error) {
      write_text(invitation->problem,
                         concat("rank 0 has no address for the other ranks: ", error.sentence(),
                                "; MpiSessionOptions::address can name one"));
    }
  }
  MPI_Request request = MPI_REQUEST_NULL;
  comm.call([&] {
    check_mpi(MPI_Ibcast(invitation.get(), sizeof *invitation, MPI_BYTE, 0, comm.comm(), &request),
              "MPI_Ibcast");
  });
  comm.finish(request, "MPI_Ibcast", invitation);
  check(invitation->problem[0] == 0, invitation->problem);

  struct Failed {
    int mine, lowest = 0;
  };
  const auto failed = std::make_shared<Failed>(Failed{comm.size()});
  std::string why;
  if (comm.rank() != 0) {
    try {
      store = std::make_shared<TcpStore>(RendezvousOptions{
          .rank = comm.rank(),
          .master = invitation->address,
          .port = invitation->port,
          .job = job,
          .secret = invitation->secret,
          .timeout_s = connect_s,
          .operation_timeout_s = std::min(10.0, connect_s),
          .ports = 1});
    } catch (const Error& error) {
      why = error.sentence();
      failed->mine = comm.rank();
    }
  }
  comm.call([&] {
    check_mpi(
        MPI_Iallreduce(&failed->mine, &failed->lowest, 1, MPI_INT, MPI_MIN, comm.comm(), &request),
        "MPI_Iallreduce");
  });
  comm.finish(request, "MPI_Iallreduce", failed);
  check(why.empty(), why);
  check(failed->lowest == comm.size(), "rank ", failed->lowest, " cannot reach rank 0 at ",
        HostPort{invitation->address, invitation->port},
        "; MpiSessionOptions::address can name another address of rank 0");
  return store;
}

}  // namespace dhp::comm
