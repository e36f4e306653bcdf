// A stand-in for CUDA's driver library on machines without a GPU. CUDA's runtime finds no device, but cuDNN can load
// the kernels that it compiles, and so make, write and read plans for a described device. No kernel can run.
#include <cstddef>

namespace {

constexpr int success = 0, no_driver = 34;  // CUDA_SUCCESS, CUDA_ERROR_STUB_LIBRARY
int loaded_thing = 0;

}  // namespace

extern "C" {
// CUDA's runtime calls these functions first, and then reports that there is no driver.
int cuInit(unsigned) { return no_driver; }
int cuGetExportTable(const void**, const void*) { return no_driver; }
int cuGetProcAddress_v2(const char*, void**, int, unsigned long long, void*) { return no_driver; }

// cuDNN's engines call these functions while they make a plan.
int cuDriverGetVersion(int* version) { return *version = 13000, success; }
int cuGetErrorName(int, const char** text) { return *text = "no driver", success; }
int cuGetErrorString(int, const char** text) { return *text = "no driver", success; }
int cuLibraryLoadData(void** library, const void*, int*, void**, unsigned, int*, void**, unsigned) {
  return *library = &loaded_thing, success;
}
int cuLibraryUnload(void*) { return success; }
int cuLibraryGetKernel(void** kernel, void*, const char*) {
  return *kernel = &loaded_thing, success;
}
int cuKernelGetAttribute(int* value, int, void*, int) { return *value = 64, success; }
int cuKernelSetAttribute(int, int, void*, int) { return success; }
int cuOccupancyMaxPotentialClusterSize(int* size, void*, const void*) {
  return *size = 16, success;
}
int cuCtxGetCurrent(void** context) { return *context = &loaded_thing, success; }
int cuCtxGetLimit(std::size_t* value, int) { return *value = 1024, success; }
int cuDeviceGetCount(int* count) { return *count = 1, success; }
int cuDeviceGet(int* device, int number) { return *device = number, success; }

// These functions only have to exist.
int cuCtxPopCurrent(void**) { return no_driver; }
int cuCtxPushCurrent(void*) { return no_driver; }
int cuStreamGetCtx(void*, void**) { return no_driver; }
int cuLinkCreate(unsigned, int*, void**, void**) { return no_driver; }
int cuLinkAddData(void*, int, void*, std::size_t, const char*, unsigned, int*, void**) {
  return no_driver;
}
int cuLinkComplete(void*, void**, std::size_t*) { return no_driver; }
int cuLinkDestroy(void*) { return no_driver; }
int cuLibraryLoadFromFile(void**, const char*, int*, void**, unsigned, int*, void**, unsigned) {
  return no_driver;
}
int cuLaunchKernel(void*) { return no_driver; }
int cuLaunchCooperativeKernel(void*) { return no_driver; }
int cuLaunchKernelEx(const void*, void*, void**, void**) { return no_driver; }
}
