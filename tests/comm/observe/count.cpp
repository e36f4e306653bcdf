#include <dhp/comm/observe/count.hpp>
#include <tests/comm/collectives.hpp>

TEST_CASE("count: calls and bytes are counted by kind and by group") {
  const auto of_ranks = on_ranks(4, [](Comm<Cpu>& plain, Cpu& dev) {
    const auto counts = std::make_shared<CallCounts>();
    auto world = counted(dev, plain, counts);
    auto half = world.split(world.rank() % 2, world.rank());
    auto alone = world.split(world.rank(), 0);
    counts->reset();
    auto four = Tensor<Cpu>::zeros(dev, DType::f32, {4});
    auto two = Tensor<Cpu>::zeros(dev, DType::f32, {2});
    for (int call = 0; call < 3; ++call) world.all_reduce(dev, four.mut()).wait();
    half.reduce_scatter(dev, four.view(), two.mut()).wait();
    half.all_gather(dev, two.view(), four.mut()).wait();
    alone.all_reduce(dev, four.mut()).wait();
    if (half.rank() == 0) half.send(dev, Tensor<Cpu>::zeros(dev, DType::f64, {5}), 1);
    else half.recv(dev, Tensor<Cpu>::zeros(dev, DType::f64, {5}).mut(), 0);
    return counts;
  });
  for (int rank = 0; rank < 4; ++rank) {
    const auto& mine = *of_ranks[static_cast<std::size_t>(rank)];
    const CallCounts::Group all{0, 1, 2, 3}, half{rank % 2, rank % 2 + 2};
    CHECK(mine.of(all, CallKind::all_reduce) == CallCount{3, 48});
    CHECK(mine.of(all, CallKind::all_gather) == CallCount{});
    CHECK(mine.of(half, CallKind::reduce_scatter) == CallCount{1, 16});
    CHECK(mine.of(half, CallKind::all_gather) == CallCount{1, 8});
    const bool sends = rank < 2;
    CHECK(mine.of(half, CallKind::send).bytes == (sends ? 40 : 0));
    CHECK(mine.of(half, CallKind::recv).bytes == (sends ? 0 : 40));
    CHECK(mine.sent_bytes(all) == 2 * 48 * 3 / 4.0);
    CHECK(mine.sent_bytes(half) == 8 + 8 + (sends ? 40 : 0));
    CHECK(mine.sent_bytes({rank}) == 0);
  }
}
