// Two files of one program include all headers: a function that is not inline would clash.
#include <dhp/default_device.hpp>
#include <dhp/dhp.hpp>

int other_unit();

int main() { return other_unit() - dhp::version_major; }
