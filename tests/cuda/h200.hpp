// A device description, for which cuDNN makes plans without a GPU.
#pragma once

#include <string>

namespace tests {

// An H200 as cuDNN describes devices.
inline std::string h200_for_cudnn() {
  return R"({"deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
"multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
"totalGlobalMem": 150000000000, "l2CacheSize": 62914560, "warpSize": 32,
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65536,
"maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
"maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "pciDeviceId": 0,
"isTccDriver": 0, "supportCoopLaunch": 1})";
}

}  // namespace tests
