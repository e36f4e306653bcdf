// What every engine of messages has to do for ProcessComm: collectives, messages, and ends that name who is to blame.
#pragma once

#include <tests/comm/process_ranks.hpp>

namespace tests {

/// To be called once, by a test case of its own: it has subcases.
void check_processes(const MakeMessages& make);

}  // namespace tests
