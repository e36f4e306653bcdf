#include <dhp/comm/comm.hpp>
#include <tests/comm/ranks.hpp>

namespace {

TEST_CASE("comm: alone, every collective is the identity") {
  Cpu dev;
  Comm<Cpu> self;
  const std::vector<float> values{1, -2, 3};
  auto x = tensor_of(dev, values);
  auto y = Tensor<Cpu>::zeros(dev, DType::f32, Shape{3});
  const auto moves = [&](auto move) {
    dev.fill_zero(y.mut().bytes(), y.size_bytes());
    move();
    return y.to_host<float>(dev) == values;
  };
  for (const auto reduce : {Reduce::sum, Reduce::max, Reduce::min})
    self.all_reduce(dev, x.mut(), reduce).wait();
  self.broadcast(dev, x.mut(), 0).wait();
  self.all_gather(dev, x, x.mut()).wait();  // in place
  CHECK(x.to_host<float>(dev) == values);
  CHECK(moves([&] { self.all_gather(dev, x, y.mut()).wait(); }));
  CHECK(moves([&] { self.reduce_scatter(dev, x, y.mut()).wait(); }));
  CHECK(moves([&] { self.all_to_all(dev, x, y.mut()).wait(); }));
  CHECK(moves([&] { self.shift(dev, x, y.mut()).wait(); }));
  self.barrier();
  CHECK(self.split(0, 3).size() == 1);
  auto other = Tensor<Cpu>::zeros(dev, DType::f64, Shape{3});
  CHECK(has(message_of([&] { self.send(dev, x.share(), 0); }), "cannot send to rank 0"));
  CHECK(has(message_of([&] { self.recv(dev, x.mut(), 1); }), "cannot receive from rank 1"));
  CHECK(has(message_of([&] { self.all_gather(dev, x, other.mut()); }), "f64 [3] is not 1"));
  CHECK(message_of([&] { self.abort("enough"); }) == "enough");
}

TEST_CASE("comm: a default one is a group of one, and so is what was moved from") {
  Comm<Cpu> first;
  CHECK(first.size() == 1);
  CHECK(first.rank() == 0);
  Comm<Cpu> second = std::move(first);
  CHECK(first.size() == 1);  // NOLINT: that is the point
  first.barrier();
  second.barrier();
}

TEST_CASE("comm: a part of one rank is a group of one") {
  const auto results = on_ranks(3, [](Comm<Cpu>& world, Cpu& dev) {
    auto alone = world.split(world.rank(), 0);
    auto none = world.split(-1, 0);  // nobody joins: still a group of one each
    auto x = tensor_of<std::int64_t>(dev, {world.rank()});
    alone.all_reduce(dev, x.mut()).wait();
    none.all_reduce(dev, x.mut()).wait();
    return std::vector<std::int64_t>{alone.size(), none.size(), x.to_host<std::int64_t>(dev)[0]};
  });
  for (std::int64_t rank = 0; rank < 3; ++rank)
    CHECK(results[static_cast<std::size_t>(rank)] == std::vector<std::int64_t>{1, 1, rank});
}

}  // namespace
