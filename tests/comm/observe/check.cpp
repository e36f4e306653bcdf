#include <dhp/comm/observe/check.hpp>
#include <tests/comm/collectives.hpp>

namespace {

// The error of every rank of a checked world of n ranks.
template <class Body>
std::vector<std::string> ends_of_checked(int n, Body body) {
  return on_ranks(n, [&](Comm<Cpu>& world, Cpu& dev) {
    auto checked = observe<Cpu>(world, std::make_shared<CallChecking<Cpu>>(dev, world));
    return message_of([&] { body(checked, dev); });
  });
}

TEST_CASE("check: checked calls have the same results") {
  for (const auto& end : ends_of_checked(4, [](Comm<Cpu>&world, Cpu&dev) {
         check(world.transport() == "threads of one process", world.transport());
         check_as_before(world, dev);
       }))
    CHECK(end == "no error");
}

TEST_CASE("check: the first difference is named on every rank") {
  const auto ends = ends_of_checked(3, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {2, 3});
    auto y = Tensor<Cpu>::zeros(dev, DType::f32, {7});
    if (world.rank() == 2) world.all_reduce(dev, y.mut());
    else world.all_reduce(dev, x.mut());
  });
  for (const auto& end : ends) {
    CHECK(has(end, "ranks do not agree: rank 0 calls all_reduce of 6 f32 (sum) at check.cpp:"));
    CHECK(has(end, ", rank 2 calls all_reduce of 7 f32 (sum) at check.cpp:"));
  }
}

TEST_CASE("check: errors use world ranks in groups, and cover messages and operations") {
  const auto in_group = ends_of_checked(4, [](Comm<Cpu>& world, Cpu& dev) {
    auto half = world.split(world.rank() / 2, world.rank());
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {2});
    if (world.rank() == 3) half.barrier();
    else half.all_reduce(dev, x.mut());
  });
  CHECK(in_group[0] == "no error");
  CHECK(has(in_group[2], "rank 2 calls all_reduce of 2 f32 (sum) at"));
  CHECK(has(in_group[3], ", rank 3 calls barrier at"));
  const auto message = ends_of_checked(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, {2});
    auto y = Tensor<Cpu>::zeros(dev, DType::i32, {2});
    if (world.rank() == 0) world.send(dev, x.share(), 1);
    else world.recv(dev, y.mut(), 0);
  });
  CHECK(has(message[1], "ranks do not agree: rank 0 sends a message of 2 f32 at check.cpp:"));
  CHECK(has(message[1], ", rank 1 receives a message of 2 i32 at check.cpp:"));
}

}  // namespace
