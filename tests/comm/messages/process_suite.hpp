// Checks of every message engine under ProcessComm: collectives, messages, and errors that name the rank at fault.
#pragma once

#include <tests/comm/process_ranks.hpp>

namespace tests {

/// Has subcases, so call it once, in a test case of its own.
void check_processes(const MakeMessages& make);

}  // namespace tests
