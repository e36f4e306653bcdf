// From samples to a micro-batch, in two halves: a Batcher reads samples into named host arrays, in any
// prefetch thread; upload() copies them to the device, in the thread of the rank.
#pragma once

#include <dhp/tensor/micro_batch.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// An array in host memory.
class HostArray {
 public:
  HostArray() = default;  ///< none
  /// All zero.
  HostArray(DType dtype, const Shape& shape)
      : dtype_(dtype),
        shape_(shape),
        bytes_(static_cast<std::size_t>(shape.count()) * size_of(dtype)),
        present_(true) {}
  template <class T>
  HostArray(const Shape& shape, const std::vector<T>& values) : HostArray(dtype_of<T>(), shape) {
    check(static_cast<std::int64_t>(values.size()) == shape.count(), "an array of shape ", shape,
          " needs ", shape.count(), " values, got ", values.size());
    std::copy(values.begin(), values.end(), this->values<T>().begin());
  }

  [[nodiscard]] bool empty() const { return !present_; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] std::span<T> values() {
    check_type<T>();
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }
  template <class T>
  [[nodiscard]] std::span<const T> values() const {
    check_type<T>();
    return {reinterpret_cast<const T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

  friend bool operator==(const HostArray&, const HostArray&) = default;

 private:
  template <class T>
  void check_type() const {
    check(dtype_ == dtype_of<T>(), "an array of ", dtype_, " was read as ", dtype_of<T>());
  }

  DType dtype_ = DType::f32;
  Shape shape_;
  std::vector<std::byte> bytes_;
  bool present_ = false;
};

/// A micro-batch on the host; fields as in MicroBatch.
struct HostBatch {
  HostArray input;  ///< none for tokens
  std::vector<std::pair<std::string, HostArray>> side;
  std::vector<std::pair<std::string, std::int64_t>> counts;
  /// Rows of a sample where rows are numbered: upload() adds the rows of the samples before this batch to
  /// the side input "row_numbers", which collate() cannot know. 0: no such side input.
  std::int64_t rows_per_sample = 0;

  friend bool operator==(const HostBatch&, const HostBatch&) = default;
};

namespace data {

template <class B>
concept HasSize = requires(const B& batcher) {
  { batcher.size() } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept HasCollate = requires(const B& batcher, std::span<const std::int64_t> indices,
                              std::int64_t epoch) {
  { batcher.collate(indices, epoch) } -> std::same_as<HostBatch>;
};

}  // namespace data

/// Makes host batches of the samples of the dataset it owns.
/// collate(indices, epoch) is a pure function, safe to call from several threads at once; its random
/// numbers are SampleRandom(seed, epoch, index, use), never of a sample's place in the batch.
template <class B>
concept Batcher = data::HasSize<B> && data::HasCollate<B>;

/// Where a type is no batcher, the compiler says which member it lacks.
template <class B>
constexpr void require_batcher() {
  static_assert(data::HasSize<B>, "a batcher lacks: std::int64_t size() const");
  static_assert(data::HasCollate<B>,
                "a batcher lacks: HostBatch collate(std::span<const std::int64_t> indices, "
                "std::int64_t epoch) const");
}

/// Runs body() and makes its error name the sample; for Batchers.
template <class Body>
decltype(auto) naming_sample(std::int64_t index, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    fail("sample ", index, ": ", error.sentence());
  } catch (const std::exception& error) {
    fail("sample ", index, ": ", error.what());
  }
}

template <Device Dev>
[[nodiscard]] Tensor<Dev> upload(Dev& dev, const HostArray& array) {
  if (array.empty()) return {};
  Tensor<Dev> made(dev, array.dtype(), array.shape());
  dev.copy_from_host(made.mut().bytes(), array.bytes().data(), array.bytes().size());
  return made;
}

/// The batch on the device; `index` is its number k in the step, `samples` its samples of the step.
template <Device Dev>
[[nodiscard]] MicroBatch<Dev> upload(Dev& dev, HostBatch batch, std::int64_t index, Range samples) {
  MicroBatch<Dev> made;
  made.index = index;
  made.first_sample = samples.first;
  made.samples = samples.size();
  made.input = upload(dev, batch.input);
  for (auto& [name, array] : batch.side) {
    if (batch.rows_per_sample > 0 && name == "row_numbers")
      for (auto& number : array.template values<std::int64_t>())
        number += samples.first * batch.rows_per_sample;
    made.side.emplace_back(std::move(name), upload(dev, array));
  }
  made.counts = std::move(batch.counts);
  return made;
}

}  // namespace dhp
