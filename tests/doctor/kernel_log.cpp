#include <examples/doctor/kernel_log.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

using namespace examples::doctor;

namespace {

const char* const log_text =
    "6,1,5;usb 1-1: new device\n"
    "4,2,6;NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n"
    "4,3,7;NVRM: Xid (PCI:0000:3b:00): 31, pid=2, MMU Fault\n"
    "4,4,8;NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\n"
    "4,5,9;NVRM: Xid (PCI:0000:18:00";

}  // namespace

TEST_CASE("kernel_log: each Xid once") {
  const auto found = xids_in(log_text);
  REQUIRE(found.size() == 2);
  CHECK(found[0] == Xid{"0000:18:00", 79});
  CHECK(found[1] == Xid{"0000:3b:00", 31});
  CHECK(xids_in("").empty());
  CHECK(xids_in("NVRM: Xid (PCI:0000:18:00): x").empty());
}

TEST_CASE("kernel_log: which Xids say something of the GPU") {
  CHECK(verdict_on_xid(79) == Verdict::failed);
  CHECK(verdict_on_xid(63) == Verdict::warning);
  CHECK(verdict_on_xid(31) == Verdict::ok);
}

TEST_CASE("kernel_log: a log that can be read, and one that cannot") {
  const auto path =
      std::filesystem::temp_directory_path() / ("dhp_kernel_log." + std::to_string(::getpid()));
  std::ofstream(path) << log_text;
  std::string why;
  CHECK(kernel_log(why, path.c_str()) == log_text);
  CHECK(why.empty());
  std::filesystem::remove(path);
  CHECK(kernel_log(why, path.c_str()).empty());
  CHECK(why == "the kernel's log cannot be read: No such file or directory");
}
