#include <dhp/comm/host_name.hpp>

#include <doctest/doctest.h>

#include <fstream>

namespace {

TEST_CASE("host name: the one that the system has") {
  std::string name;
  std::ifstream("/proc/sys/kernel/hostname") >> name;
  CHECK(dhp::host_name() == name);
}

TEST_CASE("host name: with or without a domain it is this machine's own") {
  const auto label = dhp::host_name().substr(0, dhp::host_name().find('.'));
  const bool named = label != "localhost";  // which is every machine's
  CHECK(dhp::is_own_name(dhp::host_name()) == named);
  CHECK(dhp::is_own_name(label + ".cluster.example") == named);
  for (const auto& other : {label + "x", "x." + label, std::string("localhost"), std::string()})
    CHECK_FALSE(dhp::is_own_name(other));
}

}  // namespace
