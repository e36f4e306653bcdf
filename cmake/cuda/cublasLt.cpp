#include "version.hpp"

#include <cublasLt.h>

int main() {
  return status_of(static_cast<int>(cublasLtGetVersion()), CUBLAS_VERSION,
                   static_cast<int>(cublasLtGetCudartVersion()));
}
