// Watchdogs: run_ranks with a time limit for ranks as threads, deadlines, and flight recorders. The headers of ranks as
// processes include this one. It needs only the standard library.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/watch/launch.hpp>
