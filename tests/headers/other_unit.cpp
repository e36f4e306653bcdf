#include <dhp/cpu.hpp>
#include <dhp/dhp.hpp>

int other_unit() { return dhp::version_major; }
