#include <dhp/comm/gather.hpp>
#include <dhp/comm/mesh.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using Ranks = std::vector<std::int32_t>;

// The world ranks of a group, in its order.
Ranks members(Comm<Cpu>& group, Comm<Cpu>& world, Cpu& dev) {
  return detail::rows_of_all<Cpu, std::int32_t>(dev, group, {world.rank()}, CallSite::current());
}

struct Seen {
  int data, tensor, pipeline, context;
  Ranks replicas, tensor_axis, pipeline_axis, backward_axis, context_axis;
};

TEST_CASE("mesh: tensor ranks are adjacent, then context, then data, then pipeline") {
  for (const MeshShape shape :
       {MeshShape{}, MeshShape{.data = 2, .tensor = 2, .pipeline = 2}, MeshShape{.data = 3},
        MeshShape{.pipeline = 3}, MeshShape{.data = 1, .tensor = 4, .pipeline = 2},
        MeshShape{.data = 3, .tensor = 1, .pipeline = 2},
        MeshShape{.data = 2, .tensor = 2, .context = 3},
        MeshShape{.data = 2, .pipeline = 2, .context = 2}}) {
    CAPTURE(to_text(shape));
    const auto seen = on_ranks(shape.size(), [&](Comm<Cpu>& world, Cpu& dev) {
      Mesh<Cpu> mesh(world, shape);
      return Seen{mesh.data_index(),
                  mesh.tensor_index(),
                  mesh.pipeline_index(),
                  mesh.context_index(),
                  members(mesh.data(), world, dev),
                  members(mesh.tensor(), world, dev),
                  members(mesh.pipeline(), world, dev),
                  members(mesh.pipeline_backward(), world, dev),
                  members(mesh.context(), world, dev)};
    });
    const auto rank_at = [&](int replica, int t, int p) {
      return static_cast<std::int32_t>((p * shape.replicas() + replica) * shape.tensor + t);
    };
    const auto axis = [](int size, const auto& rank) {
      return generate<std::int32_t>(size, [&](auto i) { return rank(static_cast<int>(i)); });
    };
    for (int p = 0; p < shape.pipeline; ++p)
      for (int replica = 0; replica < shape.replicas(); ++replica)
        for (int t = 0; t < shape.tensor; ++t) {
          const auto& of = seen[static_cast<std::size_t>(rank_at(replica, t, p))];
          CHECK(of.data == replica / shape.context);
          CHECK(of.context == replica % shape.context);
          CHECK(of.tensor == t);
          CHECK(of.pipeline == p);
          CHECK(of.replicas == axis(shape.replicas(), [&](int i) { return rank_at(i, t, p); }));
          CHECK(of.tensor_axis ==
                axis(shape.tensor, [&](int i) { return rank_at(replica, i, p); }));
          CHECK(of.pipeline_axis ==
                axis(shape.pipeline, [&](int i) { return rank_at(replica, t, i); }));
          CHECK(of.context_axis == axis(shape.context, [&](int i) {
                  return rank_at(of.data * shape.context + i, t, p);
                }));
          CHECK(of.backward_axis == of.pipeline_axis);
        }
  }
}

TEST_CASE("mesh: the two directions of a pipeline do not mix") {
  const auto got = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    Mesh<Cpu> mesh(world, {.pipeline = 2});
    const int other = 1 - world.rank();
    auto x = tensor_of<float>(dev, {0});
    mesh.pipeline().send(dev, tensor_of<float>(dev, {1}), other);
    mesh.pipeline_backward().send(dev, tensor_of<float>(dev, {2}), other);
    mesh.pipeline_backward().recv(dev, x.mut(), other);
    return x.to_host<float>(dev)[0];
  });
  CHECK(got == std::vector<float>{2, 2});
}

TEST_CASE("mesh: a shape that does not fit the world is refused") {
  const auto refused = [](MeshShape shape) {
    return message_of([&] { Mesh<Cpu>(Comm<Cpu>(), shape); });
  };
  CHECK(refused({.data = 4, .tensor = 2, .pipeline = 2}) ==
        "a mesh of 4x2x2 (data x tensor x pipeline) needs 16 ranks, the world has 1");
  CHECK(has(refused({.data = 0}), "every axis of a mesh has at least 1 rank, got 0x1x1"));
  CHECK(has(refused({.data = -1, .tensor = -1}), "at least 1 rank"));
  CHECK(has(refused({.context = 0}), "got 1x1x1x0 (data x tensor x pipeline x context)"));
  CHECK(has(refused({.data = 1 << 20, .tensor = 1 << 20, .pipeline = 1 << 20}),
            "needs 2147483647 ranks"));
  CHECK(has(refused({.data = 1 << 16, .tensor = 1 << 16}), "needs 2147483647 ranks"));
  // All ranks throw the same error.
  CHECK(
      has(message_of([] { run_ranks(3, [](Comm<Cpu> world) { Mesh<Cpu>(world, {.data = 2}); }); }),
          "needs 2 ranks, the world has 3"));
}

}  // namespace
