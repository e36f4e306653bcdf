#include <dhp/comm/reduce_slice.hpp>
#include <tests/comm/ranks.hpp>

namespace {

template <class T>
std::byte* bytes(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
template <class T>
dhp::detail::Inputs inputs(const std::vector<std::vector<T>>& of) {
  dhp::detail::Inputs from;
  for (const auto& values : of) from.push_back(reinterpret_cast<const std::byte*>(values.data()));
  return from;
}
template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& in, Reduce reduce, Range range) {
  std::vector<T> first(in[0].size()), second(in[0].size());
  dhp::detail::reduce_slice(dtype_of<T>(), inputs(in), {bytes(first), bytes(second)}, range.first,
                            range.last, reduce);
  CHECK(same_bits(first, second));
  return first;
}

TEST_CASE("reduce: sums are taken in rank order for any number of elements") {
  for (const std::int64_t count : {1, 31, 32, 33, 255, 256, 257, 300, 5000}) {
    std::vector<std::vector<float>> in;
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
      const RandomStream stream{.seed = 3, .use = rank};
      in.push_back(generate<float>(count, [&](auto i) { return stream.normal(i); }));
    }
    std::vector<float> expected = in[0];
    for (std::size_t rank = 1; rank < in.size(); ++rank)
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += in[rank][i];
    CHECK(same_bits(reduced(in, Reduce::sum, {0, count}), expected));
  }
}

// Each rank has a NaN, and the zeros differ in sign: a maximum in another order could return other bits.
TEST_CASE("reduce: the output may be any of the inputs, or two outputs") {
  const std::int64_t count = 300;
  std::vector<std::vector<float>> in;
  for (std::uint32_t rank = 0; rank < 4; ++rank) {
    const RandomStream stream{.seed = 4, .use = rank};
    in.push_back(generate<float>(count, [&](auto i) { return stream.normal(i); }));
    in.back()[rank] = std::numeric_limits<float>::quiet_NaN();
    in.back()[10] = rank % 2 == 0 ? 0.0f : -0.0f;
  }
  for (const auto reduce : {Reduce::sum, Reduce::max, Reduce::min})
    for (std::size_t ranks = 1; ranks <= in.size(); ++ranks) {
      const std::vector<std::vector<float>> brought(in.begin(), in.begin() + std::ptrdiff_t(ranks));
      const auto expected = reduced(brought, reduce, {0, count});
      for (std::size_t home = 0; home < ranks; ++home) {
        auto own = brought;
        std::vector<float> copy(own[0].size());
        dhp::detail::reduce_slice(DType::f32, inputs(own), {bytes(own[home]), bytes(copy)}, 0,
                                  count, reduce);
        INFO(name_of(reduce), " of ", ranks, " into ", home);
        CHECK(same_bits(own[home], expected));
        CHECK(same_bits(copy, expected));
      }
    }
}

TEST_CASE("reduce: a slice leaves the rest alone") {
  const auto sum = reduced<std::int32_t>({{1, 2, 3, 4}, {10, 20, 30, 40}}, Reduce::sum, {1, 3});
  CHECK(sum == std::vector<std::int32_t>{0, 22, 33, 0});
}

TEST_CASE("reduce: 16-bit sums are rounded once") {
  // 1 is half a unit in the last place of 256 in bf16, and of 2048 in f16: rounding at each step would lose it.
  const auto b = [](float value) { return std::vector<bf16>{bf16(value)}; };
  CHECK(float(reduced<bf16>({b(256), b(1), b(1)}, Reduce::sum, {0, 1})[0]) == 258);
  const auto h = [](float value) { return std::vector<f16>{f16(value)}; };
  CHECK(float(reduced<f16>({h(2048), h(1), h(1)}, Reduce::sum, {0, 1})[0]) == 2050);
}

TEST_CASE("reduce: integers are exact beyond the precision of a double") {
  const std::int64_t big = std::int64_t{1} << 60;
  CHECK(reduced<std::int64_t>({{big}, {1}, {1}}, Reduce::sum, {0, 1})[0] == big + 2);
  CHECK(reduced<std::int64_t>({{big}, {big + 1}, {1}}, Reduce::max, {0, 1})[0] == big + 1);
  const auto most = std::numeric_limits<std::int32_t>::max();
  CHECK(reduced<std::int32_t>({{most}, {1}}, Reduce::sum, {0, 1})[0] ==
        std::numeric_limits<std::int32_t>::min());
}

TEST_CASE("reduce: a NaN on any rank makes the sum, maximum and minimum NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int bad = 0; bad < 3; ++bad)
    for (const auto reduce : {Reduce::max, Reduce::min, Reduce::sum}) {
      std::vector<std::vector<float>> in{{1}, {2}, {3}};
      in[static_cast<std::size_t>(bad)][0] = nan;
      CHECK(std::isnan(reduced(in, reduce, {0, 1})[0]));
      std::vector<std::vector<bf16>> narrow{{bf16(1.f)}, {bf16(2.f)}, {bf16(3.f)}};
      narrow[static_cast<std::size_t>(bad)][0] = bf16(nan);
      CHECK(std::isnan(float(reduced(narrow, reduce, {0, 1})[0])));
    }
}

}  // namespace
