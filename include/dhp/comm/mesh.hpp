// Mesh: the world as a grid of data x tensor x pipeline ranks, with a communicator per axis. The tensor axis is
// innermost, then data, then pipeline, so the ranks that communicate most are neighbors.
#pragma once

#include <dhp/comm/comm.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace dhp {

struct MeshShape {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;
  /// The number of ranks; saturates at the largest int.
  [[nodiscard]] int size() const {
    if (data < 1 || tensor < 1 || pipeline < 1) return 0;
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    const auto plane = std::min(most, std::int64_t{data} * tensor);
    return static_cast<int>(std::min(most, plane * pipeline));
  }
  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

[[nodiscard]] inline std::string to_text(const MeshShape& shape) {
  return concat(shape.data, "x", shape.tensor, "x", shape.pipeline, " (data x tensor x pipeline)");
}

template <class Dev>
class Mesh {
 public:
  /// Collective over the world.
  Mesh(Comm<Dev> world, MeshShape shape) : world_(std::move(world)), shape_(shape) {
    check(shape.data >= 1 && shape.tensor >= 1 && shape.pipeline >= 1,
          "every axis of a mesh has at least 1 rank, got ", shape);
    check(shape.size() == world_.size(), "a mesh of ", shape, " needs ", shape.size(),
          " ranks, the world has ", world_.size());
    const int rank = world_.rank();
    tensor_index_ = rank % shape.tensor;
    data_index_ = rank / shape.tensor % shape.data;
    pipeline_index_ = rank / (shape.tensor * shape.data);
    // The color numbers the groups of an axis by the two other coordinates.
    tensor_ = world_.split(pipeline_index_ * shape.data + data_index_, tensor_index_);
    data_ = world_.split(pipeline_index_ * shape.tensor + tensor_index_, data_index_);
    const int column = data_index_ * shape.tensor + tensor_index_;
    pipeline_ = world_.split(column, pipeline_index_);
    pipeline_backward_ = world_.split(column, pipeline_index_);
  }

  [[nodiscard]] const MeshShape& shape() const { return shape_; }
  [[nodiscard]] Comm<Dev>& world() { return world_; }
  [[nodiscard]] Comm<Dev>& data() { return data_; }
  [[nodiscard]] Comm<Dev>& tensor() { return tensor_; }
  [[nodiscard]] Comm<Dev>& pipeline() { return pipeline_; }
  /// The same ranks as pipeline(), for the opposite direction.
  [[nodiscard]] Comm<Dev>& pipeline_backward() { return pipeline_backward_; }
  [[nodiscard]] int data_index() const { return data_index_; }
  [[nodiscard]] int tensor_index() const { return tensor_index_; }
  [[nodiscard]] int pipeline_index() const { return pipeline_index_; }

  friend std::string to_text(const Mesh& mesh) { return to_text(mesh.shape_); }

 private:
  Comm<Dev> world_;
  MeshShape shape_;
  int data_index_ = 0;
  int tensor_index_ = 0;
  int pipeline_index_ = 0;
  Comm<Dev> tensor_;
  Comm<Dev> data_;
  Comm<Dev> pipeline_;
  Comm<Dev> pipeline_backward_;
};

namespace detail {
/// The ranks of a tensor group each compute everything that is not split, and their copies of a weight must stay
/// equal. So the device's bits must not depend on autotuning or on the order of sums.
template <class Dev>
void make_copies_agree(Dev& dev, const Mesh<Dev>& mesh) {
  if constexpr (requires { dev.make_deterministic(); })
    if (mesh.shape().tensor > 1) dev.make_deterministic();
}
}  // namespace detail

}  // namespace dhp
