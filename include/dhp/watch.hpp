// Watches over ranks: run_ranks with a time limit, for ranks as threads; deadlines, and flight recorders. Ranks
// that are processes bring it along. Needs the standard library only.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/comm/watch/launch.hpp>
