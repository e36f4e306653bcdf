#include <dhp/comm/collective.hpp>
#include <tests/comm/ranks.hpp>

using Calls = Collective<Cpu>;

TEST_CASE("collective: ranks agree on the operation, the count and the type of a call") {
  Cpu dev;
  auto x = Tensor<Cpu>::zeros(dev, DType::f32, {2, 3}),
       wide = Tensor<Cpu>::zeros(dev, DType::f32, {12});
  const auto sum = Calls::all_reduce(x.mut()).call;
  CHECK(sum.agreed() == "all_reduce of 6 f32 (sum)");
  CHECK(sum.bytes() == 24);
  CHECK(to_text(sum).starts_with("all_reduce of 6 f32 (sum) at collective.cpp:"));
  CHECK(Calls::reduce_scatter(wide, x.mut()).call.agreed() == "reduce_scatter of 12 f32");
  CHECK(Calls::all_gather(x, wide.mut()).call.agreed() == "all_gather of 6 f32");
  CHECK(Calls::broadcast(x.mut(), 1).call.agreed() == "broadcast of 6 f32 from rank 1");
  CHECK(CommCall{.kind = CallKind::barrier, .count = 3}.agreed() == "barrier");
  CHECK(CommCall{.kind = CallKind::recv, .count = 5}.description() == "recv of a message of 5 f32");

  const auto differs = [&](auto change) {
    auto other = sum;
    change(other);
    return !sum.agrees_with(other);
  };
  CHECK(differs([](CommCall& call) { call.kind = CallKind::all_gather; }));
  CHECK(differs([](CommCall& call) { call.count = 7; }));
  CHECK(differs([](CommCall& call) { call.dtype = DType::i32; }));
  CHECK(differs([](CommCall& call) { call.reduce = Reduce::max; }));
  CHECK_FALSE(differs([](CommCall& call) { call.other = 1; }));  // no root
  CHECK_FALSE(Calls::broadcast(x.mut(), 0).call.agrees_with(Calls::broadcast(x.mut(), 1).call));
}

TEST_CASE("collective: views that do not fit the group are refused") {
  Cpu dev;
  auto x = Tensor<Cpu>::zeros(dev, DType::f32, {6}), y = Tensor<Cpu>::zeros(dev, DType::f32, {5});
  const auto refused = [](const Calls& collective) {
    return message_of([&] { collective.check_for(2); });
  };
  CHECK(refused(Calls::reduce_scatter(x, y.mut())) ==
        "reduce_scatter: f32 [6] is not 2 blocks of f32 [5]");
  CHECK(refused(Calls::all_gather(x, y.mut())) == "all_gather: f32 [5] is not 2 blocks of f32 [6]");
  CHECK(has(refused(Calls::all_to_all(y, y.mut())), "2 equal blocks each"));
  CHECK(has(refused(Calls::all_to_all(x, x.mut())), "in place"));
  CHECK(has(refused(Calls::shift(x, y.mut())), "does not fit into"));
  CHECK(has(refused(Calls::shift(x, x.mut())), "in place"));
  CHECK(refused(Calls::broadcast(x.mut(), 2)) == "broadcast: no rank 2 in a group of 2");
  CHECK(has(refused(Calls::broadcast(x.mut(), -1)), "no rank -1"));
  CHECK(refused(Calls::broadcast(x.mut(), 1)) == "no error");

  const auto message = [](CallKind kind, int other) {
    return message_of([&] { dhp::detail::check_message(kind, 0, 2, other, CallSite::current()); });
  };
  CHECK(message(CallKind::send, 0) == "send: rank 0 of 2 cannot send to rank 0");
  CHECK(has(message(CallKind::send, 2), "cannot send to rank 2"));
  CHECK(has(message(CallKind::recv, -1), "cannot receive from rank -1"));
  CHECK(message(CallKind::recv, 1) == "no error");
}
