#include "ledger.hpp"

#include "traffic.hpp"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace dry {

Ledger& ledger() {
  static Ledger result;
  return result;
}

std::byte* Ledger::allocate(std::size_t bytes) {
  void* const block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  blocks_[static_cast<std::byte*>(block)] = bytes;
  held_ += static_cast<double>(bytes);
  max_held_ = std::max(max_held_, held_);
  return static_cast<std::byte*>(block);
}

void Ledger::free(std::byte* block) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  parts_.erase(parts_.lower_bound(block), parts_.lower_bound(block + found->second));
  held_ -= static_cast<double>(found->second);
  munmap(block, found->second);
  blocks_.erase(found);
}

Ledger::Found Ledger::find(const Sizes& sizes, const void* address) {
  const auto* const at = static_cast<const std::byte*>(address);
  auto found = sizes.upper_bound(at);
  if (found == sizes.begin()) return {};
  --found;
  if (at >= found->first + found->second) return {};
  return {found->first, found->second};
}
Ledger::Found Ledger::find(const void* address) const {
  const auto part = find(parts_, address);
  return part.first != nullptr ? part : find(blocks_, address);
}

double Ledger::bytes_at(const void* address) const { return find(address).bytes_from(address); }
double Ledger::block_bytes_at(const void* address) const {
  return find(blocks_, address).bytes_from(address);
}
const std::byte* Ledger::tensor_of(const void* address) const { return find(address).first; }

std::string kernel_name(const char* mangled) {
  int status = 0;
  char* const result = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? result : mangled;
  std::free(result);
  for (const std::string drop :
       {"dhp::detail::cuda::", "dhp::detail::", "dhp::", "(anonymous namespace)::"})
    for (auto at = name.find(drop); at != std::string::npos; at = name.find(drop))
      name.erase(at, drop.size());
  return name;
}

double bytes_of_pointers(const std::uintptr_t* words, std::size_t count) {
  struct Uses {
    const void* lowest;
    std::map<std::uintptr_t, int> times;
  };
  std::map<const std::byte*, Uses> tensors;
  for (std::size_t at = 0; at < count; ++at) {
    const auto* const address = reinterpret_cast<const void*>(words[at]);
    const auto* const tensor = ledger().tensor_of(address);
    if (tensor == nullptr) continue;
    auto& uses = tensors.try_emplace(tensor, Uses{address, {}}).first->second;
    uses.lowest = std::min(uses.lowest, address);
    ++uses.times[words[at]];
  }
  double bytes = 0;
  for (const auto& [tensor, uses] : tensors) {
    int most = 0;
    for (const auto& [address, times] : uses.times) most = std::max(most, times);
    bytes += most * ledger().bytes_at(uses.lowest);
  }
  return bytes;
}

}  // namespace dry
