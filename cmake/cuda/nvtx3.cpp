#include <nvtx3/nvToolsExt.h>

#include <cstdio>

int main() {
  nvtxMarkA("dhp");
  std::printf("%d", NVTX_VERSION);
}
