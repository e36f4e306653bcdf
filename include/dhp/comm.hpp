// comm: communicators, collectives, and ranks as threads. Watchdogs and process engines have headers of their own:
// dhp/watch.hpp, dhp/mpi.hpp, dhp/gloo.hpp, dhp/nccl.hpp.
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
#include <dhp/comm/rank_list.hpp>
