// gpu_present [GPUS]: prints how many GPUs this build can use; exits with 1 if they are fewer than GPUS (default 1).
#include <dhp/device/cuda.hpp>

#include <cstdio>
#include <cstdlib>

int main(int count, char** words) {
  try {
    const int gpus = dhp::detail::usable_gpus();
    const int needed = count > 1 ? std::atoi(words[1]) : 1;
    std::printf("%d GPU%s\n", gpus, gpus == 1 ? "" : "s");
    if (gpus >= needed) return 0;
    std::printf("skipped: %d GPUs are needed, one for each rank\n", needed);
    return 1;
  } catch (const dhp::Error& error) {
    std::printf("skipped: %s\n", error.sentence().c_str());
    return 1;
  }
}
