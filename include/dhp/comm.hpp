// comm: communicators, collectives, ranks as threads, and who watches them. Engines between
// processes are included by name: dhp/mpi.hpp, dhp/gloo.hpp, dhp/nccl.hpp.
#pragma once

#include <dhp/comm/collective.hpp>
#include <dhp/comm/comm.hpp>
#include <dhp/comm/communicator.hpp>
#include <dhp/comm/event.hpp>
#include <dhp/comm/gather.hpp>
#include <dhp/comm/launch.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/comm/observe/check.hpp>
#include <dhp/comm/observe/count.hpp>
#include <dhp/comm/observe/observer.hpp>
#include <dhp/comm/observe/trace.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/comm/watch/deadlines.hpp>
#include <dhp/comm/watch/flight_recorder.hpp>
#include <dhp/comm/watch/world.hpp>
