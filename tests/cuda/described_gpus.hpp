// Descriptions of GPUs, for which cuDNN makes plans without a GPU.
#pragma once

#include <dhp/core/text.hpp>

#include <string>
#include <vector>

namespace tests {

/// The properties in which the GPUs differ, in cuDNN's description of devices.
struct DescribedGpu {
  const char* name;
  int major, minor, multiprocessors;
  long long memory_bytes, l2_bytes;
  int shared_bytes, threads,
      blocks;  ///< shared memory of a block; threads and blocks of a multiprocessor

  [[nodiscard]] std::string for_cudnn() const {
    return dhp::concat(R"({"deviceName": "NVIDIA )", name, R"(", "deviceVer": )",
                       major * 100 + minor * 10, R"(, "driverVer": 13000, "cudaDeviceId": 0,
"multiProcessorCount": )",
                       multiprocessors, R"(, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
"totalGlobalMem": )",
                       memory_bytes, R"(, "l2CacheSize": )", l2_bytes, R"(, "warpSize": 32,
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": )",
                       threads, R"(, "maxCtasPerSM": )", blocks, R"(, "regsPerBlock": 65536,
"maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
"maxSharedMemoryPerBlockOptin": )",
                       shared_bytes, R"(, "reservedSharedMemoryPerBlock": 1024, "pciDeviceId": 0,
"isTccDriver": 0, "supportCoopLaunch": 1})");
  }
};

/// Returns the H200 first. An H100 differs from it only in memory.
inline std::vector<DescribedGpu> described_gpus() {
  return {{"H200", 9, 0, 132, 150'000'000'000, 62'914'560, 232'448, 2048, 32},
          {"A100", 8, 0, 108, 80'000'000'000, 41'943'040, 166'912, 2048, 32},
          {"L40S", 8, 9, 142, 48'000'000'000, 100'663'296, 101'376, 1536, 24},
          {"B200", 10, 0, 148, 180'000'000'000, 132'644'864, 232'448, 2048, 32},
          {"GeForce RTX 5090", 12, 0, 170, 32'000'000'000, 100'663'296, 101'376, 1536, 24}};
}
inline std::string h200_for_cudnn() { return described_gpus().front().for_cudnn(); }

}  // namespace tests
