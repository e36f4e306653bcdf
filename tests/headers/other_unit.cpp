#include <dhp/default_device.hpp>
#include <dhp/dhp.hpp>

int other_unit() { return dhp::version_major; }
