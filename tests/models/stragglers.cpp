#include <examples/report/stragglers.hpp>
#include <tests/support/test.hpp>

using namespace examples;

TEST_CASE("stragglers: a rank that is slow for two periods is reported once, against equal work") {
  // Mesh 3 x 2 x 2: tensor is innermost, then data, then pipeline. Stage 1 has twice the work of stage 0, and the last
  // replica has half the samples.
  const dhp::MeshShape mesh{.data = 3, .tensor = 2, .pipeline = 2};
  std::vector<OwnWork> usual;
  for (int rank = 0; rank < 12; ++rank) {
    const double micro_batches = rank / 2 % 3 == 2 ? 50 : 100;
    usual.push_back({0.01 * micro_batches * (rank / 6 + 1), micro_batches});
  }
  auto slow = usual;
  slow[7].seconds *= 1.6;
  Stragglers stragglers;
  CHECK(stragglers.found(mesh, usual).empty());
  CHECK(stragglers.found(mesh, slow).empty());
  CHECK(stragglers.found(mesh, slow) == std::vector{7});
  CHECK(Stragglers::usual_s(mesh, slow, 7) == Approx(0.02));
  CHECK(stragglers.found(mesh, slow).empty());  // reported already
  CHECK(stragglers.found(mesh, usual).empty());
  CHECK(stragglers.found(mesh, slow).empty());
  CHECK(stragglers.found(mesh, slow) == std::vector{7});
  slow[7].seconds = usual[7].seconds * 1.4;
  for (int times = 0; times < 3; ++times) CHECK(stragglers.found(mesh, slow).empty());
}

TEST_CASE("stragglers: of two replicas the slower one is named; ranks without work are ignored") {
  Stragglers stragglers;
  const dhp::MeshShape two{.data = 2};
  const std::vector<OwnWork> work{{4, 100}, {2, 100}};
  CHECK(stragglers.found(two, work).empty());
  CHECK(stragglers.found(two, work) == std::vector{0});
  Stragglers idle;
  const std::vector<OwnWork> one{{4, 100}, {0.1, 0}};
  for (int times = 0; times < 3; ++times) CHECK(idle.found(two, one).empty());
}
