#include <dhp/comm/comm.hpp>
#include <tests/comm/ranks.hpp>

TEST_CASE("comm: in a group of one, every collective is the identity") {
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

TEST_CASE("comm: a default and a moved-from communicator are groups of one") {
  Comm<Cpu> first;
  CHECK(first.size() == 1);
  CHECK(first.rank() == 0);
  Comm<Cpu> second = std::move(first);
  CHECK(first.size() == 1);  // NOLINT: that is the point
  first.barrier();
  second.barrier();
}
