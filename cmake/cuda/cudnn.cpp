#include "version.hpp"

#include <cudnn.h>

static_assert(CUDNN_MAJOR >= 9, "dhp needs cuDNN 9 or later");

int main() {
  return status_of(static_cast<int>(cudnnGetVersion()), CUDNN_VERSION,
                   static_cast<int>(cudnnGetCudartVersion()));
}
