// Says which GPUs a program of this build can use; status 1 where there is none.
#include <dhp/device/cuda.hpp>

#include <cstdio>

int main() {
  try {
    const int gpus = dhp::usable_gpus();
    std::printf("%d GPU%s\n", gpus, gpus == 1 ? "" : "s");
    return 0;
  } catch (const dhp::Error& error) {
    std::printf("skipped: %s\n", error.sentence().c_str());
    return 1;
  }
}
