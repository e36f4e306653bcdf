// Watchdogs for ranks as threads: run_ranks with a time limit, deadlines, and flight recorders. Process engines have
// their own watchdog. This header needs only the standard library.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/watch/launch.hpp>
