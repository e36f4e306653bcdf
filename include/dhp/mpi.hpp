// Ranks as processes over MPI: the session of a program that uses MPI. Needs MPI and OpenSSL; link dhp::mpi.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/mpi/session.hpp>
