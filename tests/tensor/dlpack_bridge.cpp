// A C interface to tensors for dlpack.py, like the library of a program that uses Python.
#include <dhp/device/cpu.hpp>
#include <dhp/dlpack.hpp>

#include <cstdio>
#include <cstring>

namespace {

using dhp::Cpu, dhp::Tensor;

Cpu& device() {
  static Cpu result;
  return result;
}
int owners = 0;

// Exports [2, 3] with elements 0, 1, 2, ...; `owners` counts the tensors that still exist.
template <class Managed>
Managed* exported(dhp::DType type, bool shared) {
  auto kept = std::make_shared<Tensor<Cpu>>(device(), type, dhp::Shape{2, 3});
  dhp::visit_any(type, [&]<class T>(dhp::TypeTag<T>) {
    for (int at = 0; at < 6; ++at)
      kept->mut().template data<T>()[at] = static_cast<T>(static_cast<float>(at));
  });
  ++owners;
  auto* const data = kept->mut().bytes();
  Tensor<Cpu> out(std::shared_ptr<std::byte>(data, [kept](std::byte*) { --owners; }), type, {2, 3});
  static Tensor<Cpu> other;
  if (shared) other = out.share();
  auto* const result = dhp::to_dlpack<Managed>(device(), std::move(out));
  other = {};
  return result;
}
template <class Managed>
Tensor<Cpu>* imported(Managed* managed, char* message, std::size_t bytes) {
  try {
    return new Tensor<Cpu>(dhp::from_dlpack(device(), managed));
  } catch (const dhp::Error& error) {
    std::snprintf(message, bytes, "%s", error.sentence().c_str());
    return nullptr;
  }
}

}  // namespace

extern "C" {
dhp::dlpack::DLManagedTensor* bridge_old(int type, int shared) {
  return exported<dhp::dlpack::DLManagedTensor>(static_cast<dhp::DType>(type), shared != 0);
}
dhp::dlpack::DLManagedTensorVersioned* bridge_versioned(int type, int shared) {
  return exported<dhp::dlpack::DLManagedTensorVersioned>(static_cast<dhp::DType>(type),
                                                         shared != 0);
}
int bridge_owners() { return owners; }
Tensor<Cpu>* bridge_take_old(dhp::dlpack::DLManagedTensor* managed, char* message,
                             std::size_t bytes) {
  return imported(managed, message, bytes);
}
Tensor<Cpu>* bridge_take_versioned(dhp::dlpack::DLManagedTensorVersioned* managed, char* message,
                                   std::size_t bytes) {
  return imported(managed, message, bytes);
}
const void* bridge_address(const Tensor<Cpu>* tensor) { return tensor->view().bytes(); }
const char* bridge_text(const Tensor<Cpu>* tensor) {
  static std::string text;
  text = dhp::concat(tensor->dtype(), " ", tensor->shape());
  return text.c_str();
}
/// Returns whether the tensor is writable, and then sets its bytes to zero.
int bridge_clear(Tensor<Cpu>* tensor) {
  if (!tensor->unique()) return 0;
  std::memset(tensor->mut().bytes(), 0, tensor->size_bytes());
  return 1;
}
void bridge_drop(Tensor<Cpu>* tensor) { delete tensor; }
}
