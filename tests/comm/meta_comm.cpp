#include <dhp/comm/meta_comm.hpp>
#include <dhp/device/meta.hpp>
#include <tests/comm/ranks.hpp>

TEST_CASE("meta comm: a mesh of one simulated rank has the indices of the real mesh") {
  for (const auto& shape :
       {MeshShape{}, MeshShape{.data = 3}, MeshShape{.tensor = 2, .pipeline = 2},
        MeshShape{.data = 2, .tensor = 3, .pipeline = 2}, MeshShape{.data = 2, .context = 3}}) {
    const auto places = [&](auto& mesh) {
      std::vector<int> found{mesh.data_index(), mesh.tensor_index(), mesh.pipeline_index(),
                             mesh.context_index()};
      for (auto* comm : {&mesh.data(), &mesh.tensor(), &mesh.pipeline(), &mesh.pipeline_backward(),
                         &mesh.context()})
        found.insert(found.end(), {comm->rank(), comm->size()});
      return found;
    };
    run_ranks(shape.size(), [&](Comm<Cpu> world) {
      const int rank = world.rank();
      Mesh<Cpu> real(std::move(world), shape);
      Mesh<Meta> alone(Comm<Meta>::of(MetaComm<Meta>::world(shape, rank)), shape);
      CHECK(places(alone) == places(real));
    });
  }
}

TEST_CASE("meta comm: counts the bytes that a rank would send in each group") {
  Meta dev;
  auto comm = Comm<Meta>::of(MetaComm<Meta>({0, 8}, {{0, 4}, {0, 1}}));
  auto part = comm.split(0, 0), alone = comm.split(0, 0);
  auto x = Tensor<Meta>::zeros(dev, DType::f32, {8});
  comm.all_reduce(dev, x.mut()).wait();
  CHECK(dev.count().sent_bytes == 2 * 32 * 7 / 8);
  part.all_reduce(dev, x.mut()).wait();
  alone.all_reduce(dev, x.mut()).wait();
  part.send(dev, x.share(), 1);
  CHECK(dev.count().sent_bytes == 2 * 32 * 7 / 8 + 2 * 32 * 3 / 4 + 32);
}

TEST_CASE("meta comm: a sent message uses memory until it is received") {
  Meta dev;
  // The first message is received before the third call, the second one before the fourth, the third never.
  MetaComm<Meta> world({0, 4}, {{0, 2}, {0, 2}}, std::vector{2, 3, 9});
  auto forward = Comm<Meta>::of(world.split(0, 0, CallSite::current()));
  auto backward = Comm<Meta>::of(world.split(0, 0, CallSite::current()));
  const auto message = [&] { return Tensor<Meta>::zeros(dev, DType::f32, {256}); };
  const auto holds = [&](std::size_t messages) {
    CHECK(dev.memory().in_use_bytes() == messages * 1024);
  };
  for (int step = 0; step < 2; ++step) {
    forward.send(dev, message(), 1);
    holds(1);
    backward.send(dev, message(), 1);
    holds(2);
    forward.send(dev, message(), 1);
    holds(2);
    auto received = message();
    backward.recv(dev, received.mut(), 1);
    received = {};
    holds(1);
    forward.send(dev, message(), 1);  // beyond the list
    holds(1);
    world.all_received();
    holds(0);
  }
}

TEST_CASE("meta comm: sends nothing, and refuses the same calls as other communicators") {
  Meta dev;
  auto comm = Comm<Meta>::of(MetaComm<Meta>({1, 4}));
  auto part = Tensor<Meta>::zeros(dev, DType::f32, {3});
  auto whole = Tensor<Meta>::zeros(dev, DType::f32, {12});
  comm.all_gather(dev, part.view(), whole.mut()).wait();
  comm.recv(dev, part.mut(), 0);
  CHECK(comm.split(0, 1).size() == 4);
  CHECK(comm.split(-1, 0).size() == 1);
  CHECK_THROWS_AS(comm.all_gather(dev, part.view(), part.mut()), Error);
  CHECK_THROWS_AS(comm.send(dev, part.share(), 4), Error);
}
