// Gathers a model's predictions for the micro-batches of all replicas on rank 0.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/data/host_array.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace dhp {

namespace detail {

struct Prediction {
  std::int64_t micro_batch = 0;
  Shape shape{};
};
/// The location of a micro-batch's prediction.
struct PredictionPlace {
  int holders = 0;
  int rank = 0;  ///< world rank of the last holder
  Shape shape{};
};

/// Finds each micro-batch's prediction; the result is the same on all ranks. Collective.
template <class Dev>
[[nodiscard]] std::vector<PredictionPlace> find_predictions(
    Dev& dev, Mesh<Dev>& mesh, const std::vector<Tensor<Dev>>& mine,
    std::span<const MicroBatch<Dev>> batches, std::int64_t micro_batches) {
  std::vector<Prediction> own;
  if (mesh.tensor_index() == 0)  // the ranks of a tensor group have equal predictions
    for (std::size_t at = 0; at < mine.size(); ++at)
      own.push_back({batches[at].index, mine[at].shape()});
  std::vector<PredictionPlace> places(as_size(micro_batches));
  const auto all = gather_values(dev, mesh.world(), own);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const auto& [index, shape] : all[rank]) {
      check_index(index, micro_batches);
      auto& place = places[as_size(index)];
      place = {place.holders + 1, static_cast<int>(rank), shape};
    }
  return places;
}

/// mine: predictions for this rank's `batches`, or empty. Rank 0 gets one array for each micro-batch, in order (f64 if
/// the model computes in f64, otherwise f32); other ranks get none. Collective over the mesh.
template <class Dev>
[[nodiscard]] std::vector<HostArray> gather_predictions(Dev& dev, Mesh<Dev>& mesh,
                                                        std::vector<Tensor<Dev>> mine,
                                                        std::span<const MicroBatch<Dev>> batches,
                                                        std::int64_t micro_batches, DType compute) {
  auto& world = mesh.world();
  const auto places = find_predictions(dev, mesh, mine, batches, micro_batches);
  const auto dtype = accumulation_type(compute);
  open_messages(dev, world);
  std::vector<HostArray> found;
  for (std::int64_t index = 0; index < micro_batches; ++index) {
    const auto& [holders, from, shape] = places[as_size(index)];
    check(holders == 1, "micro-batch ", index,
          " of this step is predicted by no replica, or by two; they are numbered from 0 over all "
          "replicas of the data axis");
    if (world.rank() != 0 && world.rank() != from) continue;
    Tensor<Dev> whole(dev, dtype, shape);
    if (world.rank() == from) {
      const auto at = std::find_if(batches.begin(), batches.end(),
                                   [&](const auto& batch) { return batch.index == index; });
      cast(dev, mine[as_size(at - batches.begin())].view(), whole.mut());
    }
    if (from != 0 && world.rank() == from) world.send(dev, std::move(whole), 0);
    if (world.rank() != 0) continue;
    if (from != 0) world.recv(dev, whole.mut(), from);
    const auto copy = dev.start_copy_to_host(whole.view().bytes(), whole.size_bytes());
    world.synchronize(dev);
    found.emplace_back(dtype, shape, copy.template wait<std::byte>());
  }
  return found;
}

}  // namespace detail

/// Divides each row of [rows, columns] by its Euclidean length; a row of zeros stays zero.
inline void normalize_rows(HostArray& of) {
  const auto divide = [&]<class T>(std::span<T> values) {
    const auto columns = detail::as_size(of.shape().back());
    for (std::size_t first = 0; first < values.size(); first += columns) {
      const auto row = values.subspan(first, columns);
      double squares = 0;
      for (const auto value : row)
        squares += static_cast<double>(value) * static_cast<double>(value);
      if (squares == 0) continue;
      const double length = std::sqrt(squares);
      for (auto& value : row) value = static_cast<T>(static_cast<double>(value) / length);
    }
  };
  if (of.dtype() == DType::f64) divide(of.values<double>());
  else divide(of.values<float>());
}

}  // namespace dhp
