// Mesh arranges the world as a grid of data x tensor x pipeline x context ranks, with a communicator per axis. The
// tensor axis is innermost, then context, then data, then pipeline, so the ranks that communicate most are neighbors.
#pragma once

#include <dhp/comm/comm.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace dhp {

struct MeshShape {
  int data = 1, tensor = 1, pipeline = 1, context = 1;
  /// Returns the number of ranks; at most the largest int, instead of overflowing.
  [[nodiscard]] int size() const {
    std::int64_t ranks = 1;
    for (const int axis : {data, tensor, pipeline, context})
      ranks = std::min<std::int64_t>(std::numeric_limits<int>::max(), ranks * std::max(axis, 0));
    return static_cast<int>(ranks);
  }
  /// Returns the number of replicas: ranks that hold the same weights, or shards of them, and work on different samples
  /// or on different rows of the same samples.
  [[nodiscard]] int replicas() const { return data * context; }
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

[[nodiscard]] inline std::string to_text(const MeshShape& shape) {
  const bool four = shape.context != 1;
  return concat(shape.data, "x", shape.tensor, "x", shape.pipeline,
                four ? concat("x", shape.context) : std::string(), " (data x tensor x pipeline",
                four ? " x context)" : ")");
}

template <class Dev>
class Mesh {
 public:
  /// Splits the world into one group per axis. Collective over the world.
  Mesh(Comm<Dev> world, MeshShape shape) : world_(std::move(world)), shape_(shape) {
    check(std::min({shape.data, shape.tensor, shape.pipeline, shape.context}) >= 1,
          "every axis of a mesh has at least 1 rank, got ", shape);
    check(shape.size() == world_.size(), "a mesh of ", shape, " needs ",
          detail::pluralize(shape.size(), "rank"), ", the world has ", world_.size());
    const int rank = world_.rank();
    const int replicas = shape.replicas(), replica = rank / shape.tensor % replicas;
    tensor_index_ = rank % shape.tensor;
    context_index_ = replica % shape.context;
    data_index_ = replica / shape.context;
    pipeline_index_ = rank / (shape.tensor * replicas);
    // In the split along an axis, the color encodes the rank's coordinates on the other axes.
    tensor_ = world_.split(pipeline_index_ * replicas + replica, tensor_index_);
    data_ = world_.split(pipeline_index_ * shape.tensor + tensor_index_, replica);
    const int column = replica * shape.tensor + tensor_index_;
    pipeline_ = world_.split(column, pipeline_index_);
    pipeline_backward_ = world_.split(column, pipeline_index_);
    if (shape.context > 1)
      context_ =
          world_.split((pipeline_index_ * shape.data + data_index_) * shape.tensor + tensor_index_,
                       context_index_);
  }

  [[nodiscard]] const MeshShape& shape() const { return shape_; }
  [[nodiscard]] Comm<Dev>& world() { return world_; }
  /// Communicator of all replicas: the data axis and the context axis together.
  [[nodiscard]] Comm<Dev>& data() { return data_; }
  [[nodiscard]] Comm<Dev>& tensor() { return tensor_; }
  [[nodiscard]] Comm<Dev>& context() { return context_; }
  [[nodiscard]] Comm<Dev>& pipeline() { return pipeline_; }
  /// The same ranks as pipeline(), for the opposite direction.
  [[nodiscard]] Comm<Dev>& pipeline_backward() { return pipeline_backward_; }
  /// Index of this rank's part of the samples.
  [[nodiscard]] int data_index() const { return data_index_; }
  /// Index of this rank's part of each sample's rows.
  [[nodiscard]] int context_index() const { return context_index_; }
  [[nodiscard]] int tensor_index() const { return tensor_index_; }
  [[nodiscard]] int pipeline_index() const { return pipeline_index_; }

  friend std::string to_text(const Mesh& mesh) { return to_text(mesh.shape_); }

 private:
  Comm<Dev> world_;
  MeshShape shape_;
  int data_index_ = 0, context_index_ = 0, tensor_index_ = 0, pipeline_index_ = 0;
  Comm<Dev> tensor_, data_, context_, pipeline_, pipeline_backward_;
};

namespace detail {
/// Makes the device deterministic if there is a tensor axis. The ranks of a tensor group hold copies of unsplit weights
/// and all compute their updates. Autotuning, or sums in another order, would make the copies differ.
template <class Dev>
void make_copies_agree(Dev& dev, const Mesh<Dev>& mesh) {
  if constexpr (requires { dev.make_deterministic(); })
    if (mesh.shape().tensor > 1) dev.make_deterministic();
}
}  // namespace detail

}  // namespace dhp
