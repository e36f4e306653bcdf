#include <dhp/comm/host_name.hpp>

#include <doctest/doctest.h>

#include <fstream>

namespace {

TEST_CASE("host name: the one that the system has") {
  std::string name;
  std::ifstream("/proc/sys/kernel/hostname") >> name;
  CHECK(dhp::host_name() == name);
}

}  // namespace
