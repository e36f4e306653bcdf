// Turns samples into micro-batches: a Batcher reads samples into named host arrays, in any prefetch thread; upload()
// copies these arrays to the device, in the rank's thread.
#pragma once

#include <dhp/data/host_array.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <concepts>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// A micro-batch on the host, with the fields of MicroBatch.
struct HostBatch {
  HostArray input;  ///< empty if tokens are the input
  std::vector<std::pair<std::string, HostArray>> side;
  std::vector<std::pair<std::string, std::int64_t>> counts;
  /// Rows per sample in side input "row_numbers", to which upload() adds the rows of earlier samples; 0: no such input.
  std::int64_t rows_per_sample = 0;

  /// Adds a side input that is a list of numbers.
  void put(std::string name, const auto& values) {
    side.emplace_back(std::move(name), HostArray(Shape{std::ssize(values)}, values));
  }
  friend bool operator==(const HostBatch&, const HostBatch&) = default;
};

namespace detail {

template <class B>
concept HasSize = requires(const B& batcher) {
  { batcher.size() } -> std::convertible_to<std::int64_t>;
};
template <class B>
concept HasCollate = requires(const B& batcher, std::span<const std::int64_t> indices,
                              std::int64_t epoch) {
  { batcher.collate(indices, epoch) } -> std::same_as<HostBatch>;
};

/// Checks a batcher at compile time; the error names the missing member.
template <class B>
constexpr void require_batcher() {
  static_assert(HasSize<B>, "a batcher lacks: std::int64_t size() const");
  static_assert(HasCollate<B>,
                "a batcher lacks: HostBatch collate(std::span<const std::int64_t> indices, "
                "std::int64_t epoch) const");
}
}  // namespace detail

/// Makes host batches from a dataset's samples. collate(indices, epoch) is pure and thread-safe. Its random numbers
/// come from SampleRandom(seed, epoch, index, use), independent of the position in the batch.
template <class B>
concept Batcher = detail::HasSize<B> && detail::HasCollate<B>;

/// Runs body() for a Batcher; if it throws, the error names the sample.
template <class Body>
decltype(auto) naming_sample(std::int64_t index, Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    fail("sample ", index, ": ", detail::sentence_of(error));
  }
}

template <Device Dev>
[[nodiscard]] Tensor<Dev> upload(Dev& dev, const HostArray& array) {
  if (array.empty()) return {};
  Tensor<Dev> result(dev, array.dtype(), array.shape());
  dev.copy_from_host(result.mut().bytes(), array.bytes().data(), array.bytes().size());
  return result;
}

/// Copies a batch to the device. index: number k of the micro-batch in its step; samples: its samples in the step.
template <Device Dev>
[[nodiscard]] MicroBatch<Dev> upload(Dev& dev, const HostBatch& batch, std::int64_t index,
                                     Range samples) {
  MicroBatch<Dev> result;
  result.index = index;
  result.first_sample = samples.first;
  result.samples = samples.size();
  result.input = upload(dev, batch.input);
  for (const auto& [name, array] : batch.side) {
    if (batch.rows_per_sample > 0 && name == "row_numbers") {
      auto numbers = array;
      for (auto& number : numbers.template values<std::int64_t>())
        number += samples.first * batch.rows_per_sample;
      result.side.emplace_back(name, upload(dev, numbers));
    } else {
      result.side.emplace_back(name, upload(dev, array));
    }
  }
  result.counts = batch.counts;
  return result;
}

}  // namespace dhp
