#include <dhp/core/shape.hpp>
#include <tests/support/test.hpp>

TEST_CASE("shape: extents, counts and rows are as defined") {
  const Shape shape{2, 3, 4};
  CHECK(shape.rank() == 3);
  CHECK(shape.count() == 24);
  CHECK(shape.rows() == 6);
  CHECK(shape.back() == 4);
  CHECK(to_text(shape) == "[2, 3, 4]");
  CHECK(shape.with(1, 7) == Shape{2, 7, 4});
  CHECK(Shape().count() == 1);  // a scalar
  CHECK(Shape{3, 0}.count() == 0);
  CHECK(Shape{3, 0}.rows() == 0);
  CHECK(Shape{2, 3} != Shape{2, 3, 1});
}

TEST_CASE("shape: impossible shapes are refused") {
  CHECK_THROWS_WITH_AS((Shape{1, 2, 3, 4, 5, 6, 7}), Contains("at most 6 extents"), Error);
  CHECK_THROWS_WITH_AS((Shape{-1}), Contains("never negative, got -1"), Error);
  CHECK_THROWS_WITH_AS((void)(Shape{2, 3}[2]), Contains("no dim 2 in a shape of rank 2"), Error);
  constexpr auto large = std::int64_t{1} << 30;
  CHECK_THROWS_WITH_AS((Shape{large, large}), Contains("more than 2^56 elements"), Error);
  CHECK_THROWS_WITH_AS((Shape{large, 1}.with(1, large)), Contains("2^56"), Error);
  CHECK((Shape{large, 0}.count()) == 0);
}

TEST_CASE("part_of: parts are nearly equal, cover the extent, larger ones first") {
  for (std::int64_t extent = 0; extent < 20; ++extent)
    for (int parts = 1; parts < 9; ++parts) {
      std::int64_t end = 0;
      for (int index = 0; index < parts; ++index) {
        const Range part = part_of(extent, parts, index);
        CHECK(part.first == end);
        CHECK(part.size() == extent / parts + (index < extent % parts ? 1 : 0));
        end = part.last;
      }
      CHECK(end == extent);
    }
}

TEST_CASE("part_of: a part that does not exist is refused") {
  CHECK_THROWS_WITH_AS((void)part_of(8, 0, 0), Contains("no part 0 of 0"), Error);
  CHECK_THROWS_WITH_AS((void)part_of(8, 2, 2), Contains("no part 2 of 2"), Error);
  CHECK_THROWS_WITH_AS((void)part_of(8, 2, -1), Contains("no part -1 of 2"), Error);
}
