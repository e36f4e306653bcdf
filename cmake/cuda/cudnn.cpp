#include "version.hpp"

#include <cudnn.h>

static_assert(CUDNN_VERSION >= 91002,
              "dhp needs cuDNN 9.10.2 or later: attention's gradient is wrong before");

int main() {
  return status_of(static_cast<int>(cudnnGetVersion()), CUDNN_VERSION,
                   static_cast<int>(cudnnGetCudartVersion()));
}
