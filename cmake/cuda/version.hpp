// Prints a probe's output: the version of the loaded library, and whether it fits its header.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>

/// Returns the probe's exit status. All these libraries number versions alike: 13.1.0 is 130100.
inline int status_of(int library, int header, int made_for_cuda = CUDART_VERSION) {
  const auto print = [](int number) {
    std::printf("%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
  };
  print(library);
  if (library / 10000 != header / 10000 || library < header) {
    std::printf(" does not fit its header, which is ");
    print(header);
    return 1;
  }
  if (made_for_cuda / 1000 != CUDART_VERSION / 1000) {
    std::printf(" is for CUDA %d, and the toolkit is CUDA %d", made_for_cuda / 1000,
                CUDART_VERSION / 1000);
    return 1;
  }
  return 0;
}
