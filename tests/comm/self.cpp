#include <dhp/comm/self.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

TEST_CASE("self: every collective is the identity") {
  Cpu dev;
  SelfComm<Cpu> self;
  const std::vector<float> values{1, -2, 3};
  auto x = tensor_of(dev, values);
  auto y = Tensor<Cpu>::zeros(dev, DType::f32, Shape{3});
  for (const auto reduce : {Reduce::sum, Reduce::max, Reduce::min})
    self.all_reduce(dev, x.mut(), reduce).wait();
  self.broadcast(dev, x.mut(), 0).wait();
  CHECK(x.to_host<float>(dev) == values);
  self.all_gather(dev, x, y.mut()).wait();
  CHECK(y.to_host<float>(dev) == values);
  dev.fill_zero(y.mut().bytes(), y.size_bytes());
  self.reduce_scatter(dev, x, y.mut()).wait();
  CHECK(y.to_host<float>(dev) == values);
  dev.fill_zero(y.mut().bytes(), y.size_bytes());
  self.all_to_all(dev, x, y.mut()).wait();
  CHECK(y.to_host<float>(dev) == values);
  self.all_gather(dev, x, x.mut()).wait();  // in place
  CHECK(x.to_host<float>(dev) == values);
  self.barrier();
  CHECK(self.split(0, 3).size() == 1);
  CHECK(self.rank() == 0);
}

TEST_CASE("self: there is nobody else") {
  Cpu dev;
  SelfComm<Cpu> self;
  auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{3});
  auto y = Tensor<Cpu>::zeros(dev, DType::f64, Shape{3});
  CHECK(contains(message_of([&] { self.send(dev, x.share(), 0); }), "nobody to send to"));
  CHECK(contains(message_of([&] { self.recv(dev, x.mut(), 1); }), "nobody to receive from"));
  CHECK(message_of([&] { self.broadcast(dev, x.mut(), 1); }) ==
        "broadcast: no rank 1 in a group of 1");
  CHECK(contains(message_of([&] { self.all_gather(dev, x, y.mut()); }), "[3] of f64"));
  CHECK(message_of([&] { self.abort("enough"); }) == "enough");
}

}  // namespace
