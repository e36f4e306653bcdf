// A fake of NCCL over the fake CUDA runtime (fake_cuda.hpp), with the functions that NcclComm uses. Ranks are threads
// of this process. For a program without CUDA's libraries. As in NCCL, a send waits on its stream for the receive, and
// the calls of a communicator run one after another on any streams. An unfinished call returns ncclInProgress, and a
// wait for a missing rank ends only when the communicator is aborted. After an abort, the collective continues with
// garbage on all ranks.
#pragma once

#include <tests/cuda/fake_cuda.hpp>

#include <nccl.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>

namespace fake {

inline int nccl_version = NCCL_VERSION_CODE;
/// Each GPU's number of existing communicators and of all that were made; GPUs whose process was killed, which do
/// nothing any more; GPUs whose calls fail, because another process has ended.
inline std::array<std::atomic<int>, gpus> comms_on{}, made_on{};
inline std::array<std::atomic<bool>, gpus> killed{}, failing{};

/// Limits of multiprocessors of the last communicators made: of a world, and of a split.
inline std::atomic<int> ctas_of_world = 0, ctas_of_split = 0;

/// The shared state of a communicator's ranks: each rank's contribution to each step.
struct Group {
  struct Brought {
    std::vector<char> bytes;
    int color = 0, key = 0;
  };
  explicit Group(int ranks) : size(ranks) {}
  int size;
  std::mutex mutex;
  std::map<std::tuple<std::string, std::uint64_t, int>, Brought> brought;  // by name, step, rank
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<Group>> parts;   // by split, color
};

}  // namespace fake

struct ncclComm {
  ncclComm(bool blocks, int gpu) : blocking(blocks), device(gpu) {
    ++fake::comms;
    ++fake::comms_on.at(static_cast<std::size_t>(gpu));
    ++fake::made_on.at(static_cast<std::size_t>(gpu));
  }
  ~ncclComm() {
    --fake::comms;
    --fake::comms_on.at(static_cast<std::size_t>(device));
  }
  bool blocking;
  int device;
  std::shared_ptr<fake::Group> group;
  int rank = 0;
  std::uint64_t collectives = 0, splits = 0;
  std::map<std::pair<int, bool>, std::uint64_t> messages;  // by peer, and whether sent
  std::atomic<bool> aborted = false;
  std::atomic<ncclResult_t> state = ncclSuccess;
  std::atomic<int> users = 0;   // jobs that still use this
  std::atomic<int> graphs = 0;  // recorded work that still uses this
  fake::Point last;             // end of its last kernel
  std::vector<std::thread> jobs;
};

namespace fake {

inline std::mutex ids_mutex;
inline std::map<std::string, std::shared_ptr<Group>> ids;

/// Returns the contribution of `rank` to a step; null if the communicator is aborted first.
inline const Group::Brought* brought(ncclComm& comm, const std::string& what, std::uint64_t step,
                                     int rank) {
  while (!comm.aborted) {
    {
      const std::lock_guard lock(comm.group->mutex);
      const auto at = comm.group->brought.find({what, step, rank});
      if (at != comm.group->brought.end()) return &at->second;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return nullptr;
}
inline void bring(ncclComm& comm, const std::string& what, std::uint64_t step, Group::Brought mine,
                  int rank) {
  const std::lock_guard lock(comm.group->mutex);
  comm.group->brought.try_emplace({what, step, rank}, std::move(mine));
}

/// Launches from another thread a little later; until then, the communicator's state is ncclInProgress.
ncclResult_t in_progress(ncclComm& comm, auto launch) {
  if (comm.blocking) return launch();
  if (comm.state == ncclInProgress) return ncclInvalidArgument;
  comm.state = ncclInProgress;
  ++comm.users;
  for (auto& job : std::exchange(comm.jobs, {})) job.join();  // ends threads that are done
  comm.jobs.emplace_back([&comm, launch] {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    const auto code = launch();
    comm.state = failing.at(static_cast<std::size_t>(comm.device)) ? ncclRemoteError : code;
    --comm.users;
  });
  return ncclInProgress;
}
/// Keeps the communicator open while recorded work needs it.
struct Hold {
  explicit Hold(ncclComm& of) : comm(of) { ++comm.graphs; }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() { --comm.graphs; }
  ncclComm& comm;
};
/// Launches a kernel after all earlier kernels of the communicator; make() returns its work.
ncclResult_t kernel(ncclComm& comm, cudaStream_t stream, auto make) {
  return in_progress(comm, [&comm, stream, make] {
    issue(stream, [&comm, make, hold = std::make_shared<Hold>(comm)]() -> std::function<void()> {
      const auto work = make();
      const auto before = comm.last;
      const auto after = comm.last = new_point(false);
      ++comm.users;
      return [&comm, before, after, work] {
        if (before) wait(before);
        work();
        pass(after);
        --comm.users;
      };
    });
    return ncclSuccess;
  });
}

/// Calls body with any number of the type; 16-bit types are not added.
auto with_type(ncclDataType_t type, const auto& body) {
  switch (type) {
    case ncclFloat64: return body(double());
    case ncclFloat32: return body(float());
    case ncclInt64: return body(std::int64_t());
    case ncclInt32: return body(std::int32_t());
    case ncclUint8: return body(std::uint8_t());
    default: return body(std::uint16_t());
  }
}
inline std::size_t bytes_of(ncclDataType_t type) {
  return with_type(type, [](auto one) { return sizeof one; });
}
inline void combine(char* to, const char* from, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t how) {
  with_type(type, [&]<class T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      T left, right;
      std::memcpy(&left, to + i * sizeof(T), sizeof(T));
      std::memcpy(&right, from + i * sizeof(T), sizeof(T));
      if (how == ncclSum) left = static_cast<T>(left + right);
      else if ((how == ncclMax) == (left < right)) left = right;
      std::memcpy(to + i * sizeof(T), &left, sizeof(T));
    }
  });
}

inline constexpr char garbage = 77;
/// A collective to which each rank contributes `bytes`. finish(contributions by rank) runs when all have arrived.
ncclResult_t collective(ncclComm& comm, cudaStream_t stream, const void* in, std::size_t bytes,
                        auto finish) {
  return kernel(comm, stream, [&comm, in, bytes, finish] {
    return [&comm, step = comm.collectives++, in, bytes, finish] {
      const auto& dead = killed.at(static_cast<std::size_t>(comm.device));
      if (dead) return;
      const auto* from = static_cast<const char*>(in);
      bring(comm, "collective", step, {std::vector<char>(from, from + bytes)}, comm.rank);
      std::vector<const char*> all;
      for (int rank = 0; rank < comm.group->size; ++rank) {
        const auto* other = brought(comm, "collective", step, rank);
        if (other == nullptr) {
          // Like NCCL's kernels after an abort: waits no longer, and tells its neighbors that it is done.
          for (int to = 0; to < comm.group->size && !dead; ++to)
            bring(comm, "collective", step, {std::vector<char>(bytes, garbage)}, to);
          return;
        }
        all.push_back(other->bytes.data());
      }
      finish(all);
    };
  });
}

/// Each rank contributes `parts` parts of `count` elements, and receives the sum of its part.
inline ncclResult_t reduce(ncclComm& comm, cudaStream_t stream, const void* in, void* out,
                           std::size_t count, int parts, ncclDataType_t type, ncclRedOp_t how) {
  const auto bytes = count * bytes_of(type);
  const auto at = parts == 1 ? 0 : static_cast<std::size_t>(comm.rank) * bytes;
  return collective(comm, stream, in, bytes * static_cast<std::size_t>(parts),
                    [=](const std::vector<const char*>& all) {
                      std::vector<char> total(all[0] + at, all[0] + at + bytes);
                      for (std::size_t r = 1; r < all.size(); ++r)
                        combine(total.data(), all[r] + at, count, type, how);
                      std::memcpy(out, total.data(), bytes);
                    });
}

/// The sends and receives between ncclGroupStart and ncclGroupEnd, which form one kernel.
struct Grouped {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Maker> puts, takes;
  int depth = 0;
};
inline thread_local Grouped grouped;
inline ncclResult_t launch_group() {
  if (grouped.comm == nullptr) return ncclSuccess;
  auto& comm = *std::exchange(grouped.comm, nullptr);
  return kernel(comm, grouped.stream,
                [puts = std::exchange(grouped.puts, {}), takes = std::exchange(grouped.takes, {})] {
                  std::vector<std::function<void()>> work;
                  for (const auto& put : puts) work.push_back(put());
                  for (const auto& take : takes) work.push_back(take());
                  return [work] {
                    for (const auto& piece : work) piece();
                  };
                });
}

/// A message: begin(name, step) on this side, then end(name, step). A message outside a group is launched at once. Like
/// NCCL's call, it returns success before the message is on its stream.
template <class Begin, class End>
ncclResult_t message(ncclComm& comm, cudaStream_t stream, int from, int to, bool sent, Begin begin,
                     End end) {
  const auto name = std::to_string(from) + " to " + std::to_string(to);
  const auto step = std::make_shared<std::uint64_t>();  // step of the current launch
  grouped.comm = &comm;
  grouped.stream = stream;
  grouped.puts.push_back([=, &comm] {
    *step = comm.messages[{sent ? to : from, sent}]++;
    return [=, now = *step] { begin(name, now); };
  });
  grouped.takes.push_back([=] { return [=, now = *step] { end(name, now); }; });
  if (grouped.depth > 0) return ncclSuccess;
  const auto code = launch_group();
  return code == ncclInProgress ? ncclSuccess : code;
}

}  // namespace fake

extern "C" {
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> result = 0;
  std::memset(id, 0, sizeof *id);
  const auto text = std::to_string(++result);
  std::memcpy(id->internal, text.c_str(), text.size());
  return ncclSuccess;
}
ncclResult_t ncclGetVersion(int* version) { return *version = fake::nccl_version, ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t code) {
  return code == ncclRemoteError ? "remote process exited or there was a network error"
                                 : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return *state = comm->state, ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return *rank = comm->rank, ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return *count = comm->group->size, ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return *device = comm->device, ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* result, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const bool blocking = config == nullptr || config->blocking != 0;
  if (config != nullptr) fake::ctas_of_world = config->maxCTAs;
  auto* const comm = *result = new ncclComm(blocking, fake::current_gpu);
  {
    const std::lock_guard lock(fake::ids_mutex);
    auto& group = fake::ids[id.internal];
    if (group == nullptr) group = std::make_shared<fake::Group>(ranks);
    comm->group = group;
  }
  comm->rank = rank;
  return fake::in_progress(*comm, [=] {
    { const std::lock_guard allocates(fake::driver); }
    fake::bring(*comm, "init", 0, {}, rank);
    for (int other = 0; other < ranks; ++other)
      if (fake::brought(*comm, "init", 0, other) == nullptr) return ncclInternalError;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommInitRank(ncclComm_t* result, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(result, ranks, id, rank, nullptr);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* result,
                           ncclConfig_t* config) {
  if (comm->last && !*comm->last) return ncclInvalidUsage;  // the real NCCL may hang
  const auto step = comm->splits++;
  const bool blocking = config->blocking != 0;
  fake::ctas_of_split = config->maxCTAs;
  return fake::in_progress(*comm, [=] {
    { const std::lock_guard allocates(fake::driver); }
    fake::bring(*comm, "split", step, {{}, color, key}, comm->rank);
    std::map<std::pair<int, int>, int> members;  // by key and rank
    for (int other = 0; other < comm->group->size; ++other) {
      const auto* theirs = fake::brought(*comm, "split", step, other);
      if (theirs == nullptr) return ncclInternalError;
      if (theirs->color == color) members[{theirs->key, other}] = other;
    }
    if (color < 0) return ncclSuccess;
    auto* const part = new ncclComm(blocking, comm->device);
    for (const auto& [place, member] : members) {
      if (member == comm->rank) break;
      ++part->rank;
    }
    const std::lock_guard lock(comm->group->mutex);
    auto& group = comm->group->parts[{step, color}];
    if (group == nullptr) group = std::make_shared<fake::Group>(static_cast<int>(members.size()));
    part->group = group;
    *result = part;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return fake::in_progress(*comm, [=] {
    if (comm->last) fake::wait(comm->last);
    return ncclSuccess;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  for (auto& job : comm->jobs) job.join();
  while (comm->users > 0 || comm->graphs > 0) std::this_thread::yield();
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return ncclCommDestroy(comm);
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  return fake::reduce(*comm, stream, in, out, count, 1, type, how);
}
ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream) {
  return fake::reduce(*comm, stream, in, out, count, comm->group->size, type, how);
}
ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto bytes = count * fake::bytes_of(type);
  return fake::collective(*comm, stream, in, bytes, [=](const std::vector<const char*>& all) {
    for (std::size_t r = 0; r < all.size(); ++r)
      std::memcpy(static_cast<char*>(out) + r * bytes, all[r], bytes);
  });
}
ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const auto bytes = count * fake::bytes_of(type);
  return fake::collective(*comm, stream, in, bytes, [=](const std::vector<const char*>& all) {
    std::memcpy(out, all[static_cast<std::size_t>(root)], bytes);
  });
}
ncclResult_t ncclGroupStart() { return ++fake::grouped.depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  return --fake::grouped.depth == 0 ? fake::launch_group() : ncclSuccess;
}
ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream) {
  const auto bytes = count * fake::bytes_of(type);
  return fake::message(
      *comm, stream, comm->rank, to, true,
      [=](const std::string& name, std::uint64_t step) {
        const auto* from = static_cast<const char*>(in);
        fake::bring(*comm, name, step, {std::vector<char>(from, from + bytes)}, 0);
      },
      [=](const std::string& name, std::uint64_t step) {
        (void)fake::brought(*comm, name, step, 1);
      });
}
ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream) {
  const auto bytes = count * fake::bytes_of(type);
  return fake::message(
      *comm, stream, from, comm->rank, false,
      [=](const std::string& name, std::uint64_t step) {
        fake::bring(*comm, name, step, {}, 1);  // tells the sender that it is awaited
      },
      [=](const std::string& name, std::uint64_t step) {
        if (const auto* sent = fake::brought(*comm, name, step, 0))
          std::memcpy(out, sent->bytes.data(), bytes);
      });
}
}
