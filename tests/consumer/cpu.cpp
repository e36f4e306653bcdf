// Device Cpu and its kernels.
#include <dhp/cpu.hpp>

#include <vector>

int main() {
  dhp::Cpu device;
  const auto ones = dhp::Tensor<dhp::Cpu>::from_host(device, {2, 2}, std::vector<float>(4, 1.0f));
  return ones.count() == 4 ? 0 : 1;
}
