#include "version.hpp"

#include <nccl.h>

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1), "dhp needs NCCL 2.18 or later");

int main() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return 1;
  return status_of(version, NCCL_VERSION_CODE);
}
