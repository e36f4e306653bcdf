#include <examples/report/host_memory.hpp>
#include <tests/support/folder.hpp>

namespace {

using examples::host_memory_bytes;

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("host memory: is the free memory, or the least limit of the enclosing cgroups") {
  const tests::Folder root;
  const auto all = host_memory_bytes(root.path);  // a sandbox without /proc
  CHECK(all >= host_memory_bytes());
  CHECK(all < 1e15);
  put(root / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    2000 kB\n");
  CHECK(host_memory_bytes(root.path) == 2000 * 1024);
  put(root / "proc/self/cgroup", "0::/jobs/mine\n");
  put(root / "sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  CHECK(host_memory_bytes(root.path) == 2000 * 1024);
  put(root / "sys/fs/cgroup/jobs/memory.max", "1500000\n");
  CHECK(host_memory_bytes(root.path) == 1500000);
  put(root / "sys/fs/cgroup/jobs/mine/memory.max", "1200000\n");
  CHECK(host_memory_bytes(root.path) == 1200000);
  // A container sees its own group as the root.
  put(root / "sys/fs/cgroup/memory.max", "1100000\n");
  CHECK(host_memory_bytes(root.path) == 1100000);
}

TEST_CASE("host memory: limits of cgroups version 1 are read") {
  const tests::Folder root;
  put(root / "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n1:name=systemd:/b\n");
  put(root / "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put(root / "sys/fs/cgroup/memory/b/memory.limit_in_bytes", "1\n");
  CHECK(host_memory_bytes(root.path) == 1000000);
}

TEST_CASE("host memory: bytes are written with readable units") {
  using examples::bytes_text;
  CHECK(bytes_text(440'400'000) == "440 MB");
  CHECK(bytes_text(44'040'000) == "44.0 MB");
  CHECK(bytes_text(1'234'000'000) == "1.23 GB");
  CHECK(bytes_text(512) == "0.51 kB");
}

}  // namespace
