// What a model predicts for the micro-batches of all replicas, brought to rank 0.
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

namespace detail::predictions {

/// Where each prediction is, and its shape: f64 [micro-batches, 2 + max_rank], known to all ranks. A row has 1 + the
/// rank of the world that has it, the number of dims, and these.
inline constexpr std::int64_t prediction_fields = 2 + Shape::max_rank;

template <class Dev>
[[nodiscard]] std::vector<double> describe_predictions(Dev& dev, Mesh<Dev>& mesh,
                                                       const std::vector<Tensor<Dev>>& mine,
                                                       std::span<const MicroBatch<Dev>> batches,
                                                       std::int64_t micro_batches) {
  std::vector<double> rows(as_size(micro_batches * prediction_fields), 0);
  // The ranks of a tensor group have the same.
  const bool reports = mesh.tensor_index() == 0;
  for (std::size_t at = 0; at < mine.size(); ++at) {
    const auto index = batches[at].index;
    check(index >= 0 && index < micro_batches, "micro-batch ", index, " is not among the ",
          micro_batches, " of this step, over all replicas of the data axis");
    if (!reports) continue;
    auto* const row = rows.data() + index * prediction_fields;
    const auto& shape = mine[at].shape();
    row[0] = 1 + mesh.world().rank();
    row[1] = shape.rank();
    for (int dim = 0; dim < shape.rank(); ++dim) row[2 + dim] = static_cast<double>(shape[dim]);
  }
  if (mesh.world().size() == 1) return rows;
  // One rank writes each row, all others have zeros: the sums are exact.
  auto all = Tensor<Dev>::from_host(dev, {micro_batches, prediction_fields}, rows);
  mesh.world().all_reduce(dev, all.mut()).wait();
  mesh.world().synchronize(dev);
  return all.template to_host<double>(dev);
}

}  // namespace detail::predictions

namespace detail {
/// mine: of this rank's `batches`, or empty on ranks without the loss. Returns on rank 0 one array for each of the
/// step's `micro_batches`, in their order, of floats (doubles where the model computes in those); nothing on the
/// others. Collective over the mesh.
template <class Dev>
[[nodiscard]] std::vector<HostArray> gather_predictions(Dev& dev, Mesh<Dev>& mesh,
                                                        std::vector<Tensor<Dev>> mine,
                                                        std::span<const MicroBatch<Dev>> batches,
                                                        std::int64_t micro_batches, DType compute) {
  auto& world = mesh.world();
  const auto rows = predictions::describe_predictions(dev, mesh, mine, batches, micro_batches);
  const auto dtype = accumulation_type(compute);
  open_messages(dev, world);
  std::vector<HostArray> found;
  for (std::int64_t index = 0; index < micro_batches; ++index) {
    const auto* const row = rows.data() + index * predictions::prediction_fields;
    const auto from = static_cast<int>(row[0]) - 1;
    check(from >= 0 && from < world.size(), "micro-batch ", index,
          " of this step is predicted by no replica, or by two; they are numbered from 0 over all "
          "replicas of the data axis");
    if (world.rank() != 0 && world.rank() != from) continue;
    Shape shape;
    for (int dim = 0; dim < static_cast<int>(row[1]); ++dim)
      shape.push_back(static_cast<std::int64_t>(row[2 + dim]));
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

/// Divides each row of [rows, columns] by its Euclidean length; rows of zeros stay.
inline void normalise_rows(HostArray& of) {
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
