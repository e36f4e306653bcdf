#include <dhp/core/error.hpp>
#include <tests/cuda/ptx/machine.hpp>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

namespace tests::ptx {
namespace {

constexpr int poison = 0xff;  // NaN in all types
constexpr std::size_t alignment = 16;

[[nodiscard]] std::byte* aligned(std::vector<std::byte>& storage, std::size_t bytes) {
  storage.resize(bytes + alignment);
  const auto at = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (alignment - at % alignment) % alignment;
}
[[nodiscard]] int lowest(Mask mask) { return std::countr_zero(mask); }
void each(Mask mask, const auto& body) {
  for (; mask != 0; mask &= mask - 1) body(static_cast<std::size_t>(lowest(mask)));
}

[[nodiscard]] const char* name_of(Space space) {
  switch (space) {
    case Space::shared: return "shared";
    case Space::local: return "local";
    case Space::arguments: return "argument";
    default: return "global";
  }
}

/// DHP_LEAVE_OUT=FILE:LINE skips one barrier; DHP_LIST_BARRIERS=1 prints the barriers that were reached.
class Barriers {
 public:
  ~Barriers() {
    for (const auto& place : reached_) std::printf("barrier %s\n", place.c_str());
  }
  [[nodiscard]] bool leaves_out(const std::string& place) {
    const std::lock_guard lock(mutex_);
    if (lists_) reached_.insert(place);
    return left_out_ != nullptr && place == left_out_;
  }

 private:
  const char* left_out_ = std::getenv("DHP_LEAVE_OUT");
  bool lists_ = std::getenv("DHP_LIST_BARRIERS") != nullptr;
  std::mutex mutex_;
  std::set<std::string> reached_;
};
[[nodiscard]] Barriers& barriers() {
  static Barriers of_process;
  return of_process;
}

}  // namespace

Counts& Counts::operator+=(const Counts& other) {
  launches += other.launches;
  instructions += other.instructions;
  thread_instructions += other.thread_instructions;
  sectors += other.sectors;
  sectors_at_best += other.sectors_at_best;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  cycles += other.cycles;
  cycles_at_best += other.cycles_at_best;
  return *this;
}

std::string Machine::place_of(const Instruction& next, std::size_t depth) const {
  const auto file = static_cast<std::size_t>(next.file[depth]);
  return file < kernel_->files->size() && file > 0
             ? (*kernel_->files)[file] + ":" + std::to_string(next.line[depth])
             : std::string("somewhere");
}

template <class... What>
void Machine::wrong(const Warp& warp, const Instruction& next, int lane,
                    const What&... what) const {
  dhp::fail(kernel_->name, " at ", place_of(next, 0),
            next.file[1] > 0 ? ", called at " + place_of(next) : "", ": thread ", warp.first + lane,
            " of block ", block_, " ", what...);
}

Counts Machine::run(const Kernel& kernel, const dhp::detail::cuda::Grid& grid, Memory arguments,
                    std::vector<Memory> memory) {
  kernel_ = &kernel;
  grid_ = grid;
  counts_ = {.launches = 1};
  memory_ = std::move(memory);
  recent_.assign(kernel.code.size(), {});
  std::vector<std::byte> argument_storage;
  auto* const copied = aligned(argument_storage, arguments.size());
  std::copy(arguments.begin(), arguments.end(), copied);
  arguments_ = {copied, arguments.size()};
  shared_ = {aligned(shared_storage_, grid.shared_bytes), grid.shared_bytes};
  warps_.resize(static_cast<std::size_t>(grid.threads / lanes));
  for (auto& warp : warps_) {
    warp.first = static_cast<int>(&warp - warps_.data()) * lanes;
    Register unset;
    unset.fill(0x7ff7ff7f7ff7ff7f);
    warp.registers.assign(static_cast<std::size_t>(kernel.registers), unset);
    for (const auto& [at, value] : kernel.constants)
      warp.registers[static_cast<std::size_t>(at)].fill(value);
  }
  races_.launch_begins();
  for (std::int64_t index = 0; index < grid.blocks; ++index) run_block(index);
  counts_.bytes_read = races_.read();
  counts_.bytes_written = races_.written();
  return counts_;
}

void Machine::begin(Warp& warp, std::int64_t index) {
  const auto local_stride = (kernel_->local_bytes + alignment - 1) / alignment * alignment;
  auto* const locals = aligned(warp.locals, local_stride * lanes);
  std::memset(locals, poison, local_stride * lanes);
  warp.at.fill(0);
  warp.live = whole_warp;
  warp.waiting = 0;
  warp.registers[threads].fill(static_cast<Bits>(grid_.threads));
  warp.registers[block].fill(static_cast<Bits>(index));
  warp.registers[blocks].fill(static_cast<Bits>(grid_.blocks));
  warp.registers[ptx::arguments].fill(reinterpret_cast<Bits>(arguments_.data()));
  warp.registers[ptx::shared].fill(0);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    warp.registers[thread][lane] = static_cast<Bits>(warp.first) + lane;
    warp.registers[local][lane] = reinterpret_cast<Bits>(locals + lane * local_stride);
  }
}

void Machine::run_block(std::int64_t index) {
  block_ = index;
  if (!shared_.empty()) std::memset(shared_.data(), poison, shared_.size());
  races_.block_begins(index, shared_);
  std::vector<Warp*> order;
  for (auto& warp : warps_) {
    begin(warp, index);
    order.push_back(&warp);
  }
  for (;;) {
    std::shuffle(order.begin(), order.end(), random_);
    for (auto* warp : order) run_warp(*warp);
    const auto waits =
        std::find_if(order.begin(), order.end(), [](auto* warp) { return warp->waiting != 0; });
    if (waits == order.end()) return;
    const int at = (*waits)->at[static_cast<std::size_t>(lowest((*waits)->waiting))];
    const auto& barrier = kernel_->code[static_cast<std::size_t>(at)];
    for (auto* warp : order) {
      const auto other =
          std::find_if(warp->at.begin(), warp->at.end(), [&](int where) { return where != at; });
      if (warp->live != whole_warp || other != warp->at.end())
        wrong(**waits, barrier, lowest((*waits)->waiting), "waits at a barrier, which thread ",
              warp->first + (warp->live != whole_warp ? lowest(~warp->live)
                                                      : static_cast<int>(other - warp->at.begin())),
              warp->live != whole_warp ? " has ended without"
                                       : " does not reach: it waits elsewhere");
      warp->waiting = 0;
      warp->at.fill(at + 1);
    }
    races_.barrier();
  }
}

void Machine::run_warp(Warp& warp) {
  for (;;) {
    const Mask runnable = warp.live & ~warp.waiting;
    if (runnable == 0) return;
    int at = INT_MAX, others_at = INT_MAX;
    Mask active = 0;
    each(runnable, [&](std::size_t lane) {
      const int mine = warp.at[lane];
      if (mine < at) {
        others_at = at;
        at = mine;
        active = 0;
      } else if (mine > at) {
        others_at = std::min(others_at, mine);
      }
      if (mine == at) active |= Mask{1} << lane;
    });
    run_threads(warp, at, active, others_at);
    if (warp.live == 0 || warp.waiting != warp.live) continue;
    const auto first = static_cast<std::size_t>(lowest(warp.live));
    at = warp.at[first];
    const auto& next = kernel_->code[static_cast<std::size_t>(at)];
    if (next.kind == Kind::barrier) return;
    const auto beside = std::count(warp.at.begin(), warp.at.end(), at);
    if (warp.live != whole_warp || beside != lanes)
      wrong(warp, next, static_cast<int>(first), "waits for a ",
            next.kind == Kind::shuffle ? "shuffle" : "product", " of its warp, of which ",
            lanes - std::popcount(warp.live), " threads have ended and others wait elsewhere");
    together(warp, next);
    warp.at.fill(at + 1);
    warp.waiting = 0;
  }
}

void Machine::run_threads(Warp& warp, int at, Mask active, int others_at) {
  const auto leave_at = [&](Mask mask, int where) {
    each(mask, [&](std::size_t lane) { warp.at[lane] = where; });
  };
  auto* const registers = warp.registers.data();
  while (at < others_at) {
    const auto& next = kernel_->code[static_cast<std::size_t>(at)];
    Mask mask = active;
    if (next.guard >= 0)
      each(active, [&](std::size_t lane) {
        if ((registers[next.guard][lane] != 0) != next.guard_value) mask &= ~(Mask{1} << lane);
      });
    ++counts_.instructions;
    counts_.thread_instructions += std::popcount(mask);
    switch (next.kind) {
      case Kind::operation: next.operation(registers, next, mask); break;
      case Kind::load:
      case Kind::store:
        if (mask != 0) access(warp, next, mask);
        break;
      case Kind::branch:
        if (mask == active) {
          at = next.target;
          continue;
        }
        if (mask == 0) break;
        leave_at(mask, next.target);
        leave_at(active & ~mask, at + 1);
        return;
      case Kind::exit:
        warp.live &= ~mask;
        active &= ~mask;
        if (active == 0) return;
        break;
      case Kind::shuffle:
      case Kind::matrices:
      case Kind::product:
        if (mask == whole_warp) {
          together(warp, next);
          break;
        }
        [[fallthrough]];
      case Kind::barrier:
        if (next.kind == Kind::barrier && barriers().leaves_out(place_of(next))) break;
        leave_at(mask, at);
        leave_at(active & ~mask, at + 1);
        warp.waiting |= mask;
        return;
    }
    ++at;
  }
  leave_at(active, at);
}

void Machine::together(Warp& warp, const Instruction& next) {
  if (next.kind == Kind::shuffle) shuffle(warp, next);
  else if (next.kind == Kind::matrices) load_matrices(warp, next);
  else next.operation(warp.registers.data(), next, whole_warp);
}

void Machine::load_matrices(Warp& warp, const Instruction& next) {
  constexpr std::size_t row_bytes = 16;
  Addresses rows;  // lane 8 i + r has row r of matrix i
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    rows[lane] =
        static_cast<std::uint32_t>(warp.registers[static_cast<std::size_t>(next.address)][lane]);
    const int number = static_cast<int>(lane);
    if (rows[lane] + row_bytes > shared_.size() || rows[lane] % row_bytes != 0)
      wrong(warp, next, number, "reads a matrix's row at ", rows[lane], " of ", shared_.size(),
            " bytes of shared memory, which is beyond them or misaligned");
    races_.reads(warp.first + number, shared_.data() + rows[lane], row_bytes);
  }
  count_cycles(rows, whole_warp, row_bytes);
  const auto element = [&](std::size_t matrix, std::size_t row, std::size_t column) {
    std::uint16_t found = 0;
    std::memcpy(&found, shared_.data() + rows[8 * matrix + row] + sizeof found * column,
                sizeof found);
    return Bits{found};
  };
  for (std::size_t matrix = 0; matrix < 4; ++matrix)
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const auto group = lane / 4, pair = lane % 4 * 2;
      warp.registers[static_cast<std::size_t>(next.to[matrix])][lane] =
          next.transposes ? element(matrix, pair + 1, group) << 16 | element(matrix, pair, group)
                          : element(matrix, group, pair + 1) << 16 | element(matrix, group, pair);
    }
}

void Machine::shuffle(Warp& warp, const Instruction& next) const {
  const int value = next.from[0], with = next.from[1], bound = next.from[2], members = next.from[3];
  const auto& registers = warp.registers;
  const auto of = [&](int number, std::size_t lane) {
    return static_cast<std::uint32_t>(registers[static_cast<std::size_t>(number)][lane]);
  };
  Register exchanged;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    if (of(members, lane) != whole_warp || of(bound, lane) != lanes - 1 || of(with, lane) >= lanes)
      wrong(warp, next, static_cast<int>(lane), "shuffles with lane ^ ", of(with, lane),
            " of threads ", of(members, lane), " (a bit for each), not of the whole warp");
    exchanged[lane] = of(value, lane ^ of(with, lane));
  }
  warp.registers[static_cast<std::size_t>(next.to[0])] = exchanged;
  warp.registers[static_cast<std::size_t>(next.to[1])].fill(1);
}

Machine::Found Machine::find(const Warp& warp, const Instruction& next, int lane,
                             std::uintptr_t address) {
  const auto* const at = reinterpret_cast<const std::byte*>(address);
  const bool anywhere = next.space == Space::generic;
  if (next.space == Space::shared) return {shared_, Space::shared};
  if (next.space == Space::arguments || (anywhere && holds(arguments_, at)))
    return {arguments_, Space::arguments};
  const auto* const locals =
      reinterpret_cast<const std::byte*>(warp.registers[local][static_cast<std::size_t>(lane)]);
  if (next.space == Space::local || (anywhere && holds({locals, kernel_->local_bytes}, at)))
    return {{locals, kernel_->local_bytes}, Space::local};
  auto& recent = recent_[static_cast<std::size_t>(&next - kernel_->code.data())];
  if (holds(recent, at)) return {recent, Space::global};
  const auto behind = std::upper_bound(
      memory_.begin(), memory_.end(), at,
      [](const auto* address_, const Memory& block) { return address_ < block.data(); });
  if (behind != memory_.begin()) recent = *std::prev(behind);
  const auto beyond = at - (recent.data() + recent.size());  // in no block: names the nearest
  if (behind != memory_.end() && beyond > behind->data() - at) recent = *behind;
  return {recent, Space::global};
}

void Machine::access(Warp& warp, const Instruction& next, Mask mask) {
  const bool loads = next.kind == Kind::load;
  const unsigned bytes = next.bytes * unsigned{next.count};
  const auto& base = warp.registers[static_cast<std::size_t>(next.address)];
  Addresses in_global, in_shared;
  std::size_t globals = 0;
  each(mask, [&](std::size_t lane) {
    const int number = static_cast<int>(lane);
    const int thread = warp.first + number;
    std::uintptr_t address = base[lane] + static_cast<Bits>(next.offset);
    if (next.space == Space::shared) {
      in_shared[lane] = address = static_cast<std::uint32_t>(address);
      address += reinterpret_cast<std::uintptr_t>(shared_.data());
    }
    const auto [memory, space] = find(warp, next, number, address);
    const auto place = address - reinterpret_cast<std::uintptr_t>(memory.data());
    const char* const does = loads ? "reads " : "writes ";
    if (place > memory.size() || place + bytes > memory.size())
      wrong(warp, next, number, does, bytes, " bytes at ", static_cast<std::int64_t>(place), " of ",
            memory.size(), " bytes of ", name_of(space), " memory");
    if (address % bytes != 0)
      wrong(warp, next, number, does, bytes, " bytes of ", name_of(space),
            " memory, misaligned by ", address % bytes);
    if (space == Space::arguments && !loads) wrong(warp, next, number, "writes its arguments");
    if (space == Space::global) in_global[globals++] = address;
    const bool races = space == Space::global || space == Space::shared;
    for (std::size_t at = 0; at < next.count; ++at) {
      auto* const element = reinterpret_cast<std::byte*>(address) + at * next.bytes;
      if (!loads) {
        const auto* const value = reinterpret_cast<const std::byte*>(
            &warp.registers[static_cast<std::size_t>(next.from[at])][lane]);
        if (races) races_.writes(thread, element, next.bytes, value);
        std::memcpy(element, value, next.bytes);
        continue;
      }
      if (races) races_.reads(thread, element, next.bytes);
      Bits value = 0;
      std::memcpy(&value, element, next.bytes);
      const int above = 64 - 8 * next.bytes;
      if (next.extends_sign)
        value = static_cast<Bits>(static_cast<std::int64_t>(value << above) >> above);
      warp.registers[static_cast<std::size_t>(next.to[at])][lane] = value;
    }
  });
  if (globals > 0) count_sectors(std::span(in_global).first(globals), bytes);
  if (next.space == Space::shared) count_cycles(in_shared, mask, bytes);
}

void Machine::count_sectors(std::span<std::uintptr_t> addresses, unsigned bytes) {
  constexpr std::int64_t sector = 32;
  if (!std::is_sorted(addresses.begin(), addresses.end()))
    std::sort(addresses.begin(), addresses.end());
  std::int64_t distinct = 1, sectors = 1;
  for (std::size_t at = 1; at < addresses.size(); ++at) {
    distinct += addresses[at] != addresses[at - 1];
    sectors += addresses[at] / sector != addresses[at - 1] / sector;
  }
  counts_.sectors += sectors;
  counts_.sectors_at_best += (distinct * bytes + sector - 1) / sector;
}

void Machine::count_cycles(const Addresses& addresses, Mask mask, unsigned bytes) {
  constexpr unsigned word = 4, banks = 32;
  // Counts 128 bytes at a time; with wide elements these are a half or a quarter of the warp.
  const int together =
      bytes <= word ? lanes : lanes * static_cast<int>(word) / static_cast<int>(bytes);
  for (int first = 0; first < lanes; first += together) {
    std::array<std::uintptr_t, lanes> words;
    std::size_t count = 0;
    for (int lane = first; lane < first + together; ++lane)
      if ((mask >> lane & 1) != 0)
        for (unsigned at = 0; at < std::max(bytes, word); at += word)
          words[count++] = (addresses[static_cast<std::size_t>(lane)] + at) / word;
    if (count == 0) continue;
    const auto begin = words.begin();
    std::sort(begin, begin + static_cast<std::ptrdiff_t>(count));
    const auto end = std::unique(begin, begin + static_cast<std::ptrdiff_t>(count));
    std::array<int, banks> uses{};
    for (auto at = begin; at != end; ++at) ++uses[*at % banks];
    counts_.cycles += *std::max_element(uses.begin(), uses.end());
    counts_.cycles_at_best += (end - begin + banks - 1) / banks;
  }
}

}  // namespace tests::ptx
