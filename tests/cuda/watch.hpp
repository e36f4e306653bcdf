// What the emulator tells a checker about the threads of a kernel. There are two: unwatched.cpp does nothing, races.cpp
// looks for races. A program links one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <typeinfo>

namespace tests::watch {

void launch_begins(const std::type_info& kernel);
/// Throws if the launch was wrong.
void launch_ends();
/// shared: the block's shared memory.
void block_begins(std::int64_t block, std::span<const std::byte> shared);
/// All threads of the block have reached a barrier.
void barrier();
/// Until thread_stops() every access is the kernel's, except those to the thread's own stack.
void thread_runs(int thread, std::span<const std::byte> stack);
void thread_stops();
/// The order in which the threads of a block run until each of them waits.
[[nodiscard]] std::span<const int> order(int threads);
/// Whether to go on without waiting: a fault put in on purpose.
[[nodiscard]] bool leaves_out(const std::source_location& barrier);

}  // namespace tests::watch
