// DLPack's structs of both versions: export and import share memory, and unsuitable tensors are refused.
#include <dhp/dlpack.hpp>
#include <tests/support/tensors.hpp>

using dlpack::DLManagedTensor, dlpack::DLManagedTensorVersioned;

namespace {

// The structs of dlpack.h, with those members whose types differ from ours.
struct TheirTensor {
  void* data;
  struct {
    enum Type : std::int32_t { kDLCPU = 1 } device_type;
    std::int32_t device_id;
  } device;
  std::int32_t ndim;
  dlpack::DLDataType dtype;
  std::int64_t *shape, *strides;
  std::uint64_t byte_offset;
};
struct TheirManagedTensor {
  TheirTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(TheirManagedTensor*);
};

// Memory that records whether a tensor uses it.
struct Memory {
  std::vector<float> values = {0, 1, 2, 3, 4, 5};
  std::shared_ptr<int> users = std::make_shared<int>();
  [[nodiscard]] Tensor<Cpu> tensor() {
    auto* const bytes = reinterpret_cast<std::byte*>(values.data());
    return {std::shared_ptr<std::byte>(bytes, [user = users](std::byte*) {}), DType::f32, {2, 3}};
  }
  [[nodiscard]] bool is_used() const { return users.use_count() > 1; }
};

}  // namespace

TEST_CASE_TEMPLATE("dlpack: export and import share memory, which the last owner frees", Managed,
                   DLManagedTensor, DLManagedTensorVersioned, TheirManagedTensor) {
  Cpu dev;
  Memory memory;
  auto* const managed = to_dlpack<Managed>(dev, memory.tensor());
  const auto& out = managed->dl_tensor;
  CHECK(static_cast<const void*>(out.data) == memory.values.data());
  CHECK(static_cast<int>(out.device.device_type) == 1);
  REQUIRE(out.ndim == 2);
  CHECK(std::vector(out.shape, out.shape + 2) == std::vector<std::int64_t>{2, 3});
  CHECK(std::vector(out.strides, out.strides + 2) == std::vector<std::int64_t>{3, 1});
  {
    auto back = from_dlpack(dev, managed);
    CHECK(back.shape() == Shape{2, 3});
    back.mut().template data<float>()[4] = 40;
    CHECK(memory.values[4] == 40);
    CHECK(memory.is_used());
  }
  CHECK_FALSE(memory.is_used());
}

TEST_CASE("dlpack: a shared tensor is read-only after import, too") {
  Cpu dev;
  Memory memory;
  auto mine = memory.tensor();
  auto* const managed = to_dlpack(dev, mine.share());
  CHECK(managed->flags == dlpack::read_only);
  CHECK(managed->version.major == 1);
  CHECK(message_of([&] { (void)mine.mut(); }) != "no error");
  auto back = from_dlpack(dev, managed);
  CHECK(message_of([&] { (void)back.mut(); }) ==
        "a borrowed tensor of shape [2, 3] is read-only: write into a fresh one");
  back = {};
  CHECK(message_of([&] { (void)mine.mut(); }) == "no error");
}

TEST_CASE("dlpack: all element types, scalars and empty tensors survive a round trip") {
  Cpu dev;
  for (const auto& [type, code, bits] : dlpack::elements)
    for (const auto& shape : {Shape{}, Shape{3, 0, 2}, Shape{5}, Shape{1, 2, 1, 2, 1, 3}}) {
      CAPTURE(to_text(type));
      const auto managed = to_dlpack(dev, Tensor<Cpu>::zeros(dev, type, shape));
      CHECK(managed->dl_tensor.dtype.bits == 8 * size_of(type));
      if (shape.count() > 0 && shape.rank() > 1)
        managed->dl_tensor.strides[0] = 77;  // an extent of 1
      const auto back = from_dlpack(dev, managed);
      CHECK(back.dtype() == type);
      CHECK(back.shape() == shape);
    }
}

TEST_CASE("dlpack: an unsupported tensor is refused with a sentence and stays the caller's") {
  Cpu dev;
  Memory memory;
  DLManagedTensorVersioned* managed = nullptr;
  const auto says = [&](auto change) {
    managed = to_dlpack(dev, memory.tensor());
    change(*managed, managed->dl_tensor);
    const auto error = message_of([&] { (void)from_dlpack(dev, managed); });
    CHECK(memory.is_used());
    managed->deleter(managed);
    return error;
  };
  CHECK(says([](auto& m, auto&) { m.version.major = 2; }) ==
        "from_dlpack: the tensor has version 2.0 of DLPack; ask for 1.0, as "
        "__dlpack__(max_version=(1, 0)) does");
  CHECK(says([](auto&, auto& t) {
          t.device = {2, 1};
        }) ==
        "from_dlpack: the tensor is on a device of type 2, not in the host's memory; move it there "
        "first");
  CHECK(
      says([](auto&, auto& t) {
        t.dtype = {1, 16, 1};
      }) ==
      "from_dlpack: dhp has no elements of uint16; it takes f64, f32, f16, bf16, i64, i32 and u8");
  CHECK(says([](auto&, auto& t) {
          t.dtype.lanes = 4;
        }).starts_with("from_dlpack: dhp has no elements of float32 x 4; "));
  CHECK(says([](auto&, auto& t) {
          t.dtype.code = 200;
        }).starts_with("from_dlpack: dhp has no elements of type 200; "));
  CHECK(
      says([](auto&, auto& t) { std::swap(t.strides[0], t.strides[1]); }) ==
      "from_dlpack: dim 1 of a tensor [2, 3] has stride 3, and 1 in row-major order; copy it first "
      "(numpy.ascontiguousarray, torch's contiguous())");
  CHECK(says([](auto&, auto& t) { t.ndim = 7; }) ==
        "from_dlpack: a tensor of 7 dims; dhp's have at most 6");
  CHECK(says([](auto&, auto& t) { t.shape[0] = -1; }) == "an extent is never negative, got -1");
  CHECK(says([](auto&, auto& t) { t.byte_offset = 2; }) ==
        "from_dlpack: the elements of f32 are not aligned to their size; copy them first");
  CHECK_FALSE(memory.is_used());
  CHECK(message_of([&] { (void)from_dlpack(dev, static_cast<DLManagedTensor*>(nullptr)); }) ==
        "from_dlpack: there is no tensor");
  CHECK(message_of([&] { (void)to_dlpack(dev, Tensor<Cpu>()); }) ==
        "to_dlpack: there is no tensor");
}

TEST_CASE("dlpack: a struct without strides is row-major, and an offset counts") {
  Cpu dev;
  Memory memory;
  auto* const managed = to_dlpack(dev, memory.tensor());
  managed->dl_tensor.strides = nullptr;
  managed->dl_tensor.byte_offset = 12;
  managed->dl_tensor.shape[0] = 1;
  const auto back = from_dlpack(dev, managed);
  CHECK(back.to_host<float>(dev) == std::vector<float>{3, 4, 5});
}
