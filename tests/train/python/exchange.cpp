// exchange FROM TO: prints each tensor of FROM as name, type, extents and values, separated by tabs, and writes all
// tensors to TO. exchange.py compares both with Python.
#include <dhp/train/safetensors.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const dhp::SafeTensors from(argv[1]);
  dhp::SafeTensorsWriter to;
  for (const auto& [name, tensor] : from.tensors()) {
    auto bytes = from.read(tensor);
    std::printf("%s\t%s\t", name.c_str(), dhp::name_of(tensor.dtype));
    for (const auto extent : tensor.shape) std::printf("%lld ", static_cast<long long>(extent));
    std::printf("\t");
    dhp::visit_any(tensor.dtype, [&]<class T>(dhp::TypeTag<T>) {
      for (std::size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
        T value;
        std::memcpy(&value, bytes.data() + at, sizeof(T));
        std::printf("%.17g ", static_cast<double>(value));
      }
    });
    std::printf("\n");
    to.add(name, tensor.dtype, tensor.shape, std::move(bytes));
  }
  to.write(argv[2]);
}
