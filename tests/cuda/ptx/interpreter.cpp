#include <dhp/core/error.hpp>
#include <tests/cuda/ptx/interpreter.hpp>

#include <cstdio>
#include <fstream>

namespace tests {
namespace ptx {
namespace {

constexpr const char* own = "dhp::detail::cuda::";

/// Returns K of "void dhp::detail::cuda::run_kernel<K>(K)".
[[nodiscard]] std::string struct_of(const std::string& function) {
  const std::string before = "void dhp::detail::cuda::run_kernel<";
  if (function.rfind(before, 0) != 0) return function;
  // `rest` is "K>(K)", or "K >(K)" if K ends with ">".
  const auto rest = function.substr(before.size());
  for (const std::string between : {">(", " >("}) {
    const auto length = (rest.size() - between.size() - 1) / 2;
    if (rest.compare(length, between.size(), between) == 0) return rest.substr(0, length);
  }
  return function;
}

}  // namespace

void Interpreter::load(const std::string& path) {
  std::ifstream file(path);
  dhp::check(file.is_open(), path, ": there is no such file");
  try {
    for (auto& kernel : parse(file)) {
      kernel.name = struct_of(kernel.name);
      kernels_.try_emplace(kernel.name, Compiled{kernel});
    }
  } catch (const dhp::Error& error) {
    dhp::fail(path, ": ", error.what());
  }
}

bool Interpreter::runs(const executor::Launch& launch) {
  const auto name = demangled(launch.kernel.name());
  std::vector<Machine::Memory> memory;
  std::unique_lock lock(mutex_);
  const auto found = kernels_.find(name);
  if (found == kernels_.end()) {
    ++not_compiled_[name];
    return false;
  }
  for (const auto& [first, bytes] : memory_) memory.emplace_back(first, bytes);
  lock.unlock();

  const auto& kernel = found->second.kernel;
  dhp::check(kernel.argument_bytes == launch.arguments.size() &&
                 kernel.argument_alignment == launch.alignment,
             name, ": its arguments have ", launch.arguments.size(), " bytes aligned to ",
             launch.alignment, " on the host, and ", kernel.argument_bytes, " aligned to ",
             kernel.argument_alignment, " on the GPU");
  dhp::check(launch.grid.threads <= kernel.max_threads, name, ": it was compiled for blocks of ",
             kernel.max_threads, " threads, not for ", launch.grid.threads);
  thread_local Machine machine;
  const auto counts = machine.run(kernel, launch.grid, launch.arguments, std::move(memory));
  machine.races().launch_ends(launch.kernel);
  lock.lock();
  found->second.all += counts;
  if (counts.sectors >= found->second.largest.sectors) found->second.largest = counts;
  return true;
}

void Interpreter::allocated(std::span<const std::byte> block) {
  const std::lock_guard lock(mutex_);
  memory_[block.data()] = block.size();
}
void Interpreter::freed(const std::byte* block) {
  const std::lock_guard lock(mutex_);
  memory_.erase(block);
}

Counts Interpreter::total() const {
  const std::lock_guard lock(mutex_);
  Counts total;
  for (const auto& [name, compiled] : kernels_) total += compiled.all;
  return total;
}

void Interpreter::write_table(const std::string& path) const {
  std::ofstream file(path);
  file << "kernel\tlaunches\tinstructions of warps\tthreads of an instruction\tbytes read\tbytes "
          "written\tsectors\tsectors at best\tcycles of shared memory\tcycles at best\n";
  for (const auto& [name, compiled] : kernels_) {
    if (name.rfind(own, 0) != 0) continue;
    const auto& one = compiled.largest;
    const double active = static_cast<double>(one.thread_instructions) /
                          static_cast<double>(std::max<std::int64_t>(one.instructions, 1));
    file << dhp::concat(name.substr(std::string_view(own).size()), '\t', compiled.all.launches,
                        '\t', one.instructions, '\t', active, '\t', one.bytes_read, '\t',
                        one.bytes_written, '\t', one.sectors, '\t', one.sectors_at_best, '\t',
                        one.cycles, '\t', one.cycles_at_best, '\n');
  }
}

bool Interpreter::all_ran() const {
  int compiled = 0, ran = 0;
  bool all = true;
  Counts total;
  for (const auto& [name, one] : kernels_) {
    if (name.rfind(own, 0) != 0) continue;
    ++compiled;
    total += one.all;
    if (one.all.launches > 0) ++ran;
    else std::printf("compiled, but no test runs it: %s\n", name.c_str());
  }
  for (const auto& [name, launches] : not_compiled_)
    if (name.rfind(own, 0) == 0) {
      std::printf("run by a test, but not compiled: %s\n", name.c_str());
      all = false;
    }
  std::printf("%d kernels ran of %d compiled: %lld launches, %.1f million instructions of warps\n",
              ran, compiled, static_cast<long long>(total.launches),
              static_cast<double>(total.instructions) / 1e6);
  return all && ran == compiled && ran > 0;
}

Interpreter& interpreter() {
  static auto* const result = new Interpreter;
  return *result;
}

}  // namespace ptx

namespace executor {

bool runs(const Launch& launch) { return ptx::interpreter().runs(launch); }
void allocated(std::span<const std::byte> block) { ptx::interpreter().allocated(block); }
void freed(const std::byte* block) { ptx::interpreter().freed(block); }

}  // namespace executor
}  // namespace tests
