// Pieces: each way to cut a tensor holds every element once, and any two ways exchange the same elements.
#include <dhp/nn/pieces.hpp>
#include <tests/support/test.hpp>

namespace {

const Shape shape{5, 3, 4};

/// Cuts a tensor into `boxes` along a dim (-1: one box), and each box into `ranges`; returns all pieces.
std::vector<Piece> cut(int dim, int boxes, int ranges) {
  std::vector<Piece> pieces;
  for (int box = 0; box < boxes; ++box) {
    Piece piece{.name = "w", .shape = shape, .split_dim = dim};
    if (dim >= 0) piece.part = part_of(shape[dim], boxes, box);
    for (int range = 0; range < ranges; ++range) {
      piece.range = part_of(piece.box().count(), ranges, range);
      pieces.push_back(piece);
    }
  }
  return pieces;
}

std::vector<std::vector<Piece>> all_cuts() {
  std::vector<std::vector<Piece>> ways{cut(-1, 1, 1), cut(-1, 1, 7)};
  for (int dim = 0; dim < 3; ++dim)
    for (const int boxes : {2, 3})
      for (const int ranges : {1, 4}) ways.push_back(cut(dim, boxes, ranges));
  return ways;
}

}  // namespace

TEST_CASE("pieces: every way of cutting covers each element once, in row-major order") {
  for (const auto& pieces : all_cuts()) {
    std::vector<int> seen(static_cast<std::size_t>(shape.count()), 0);
    for (const auto& piece : pieces) {
      std::int64_t held = 0;
      for (detail::Extents runs(piece); !runs.done(); runs.next()) {
        const auto run = runs.now();
        CHECK(run.held == held);
        held += run.count;
        for (std::int64_t at = 0; at < run.count; ++at) {
          const auto whole = run.whole + at;
          ++seen[static_cast<std::size_t>(whole)];
          const std::int64_t index[] = {whole / 12, whole / 4 % 3, whole % 4};
          if (piece.split_dim >= 0) {
            CHECK(index[piece.split_dim] >= piece.part.first);
            CHECK(index[piece.split_dim] < piece.part.last);
          }
        }
      }
      CHECK(held == piece.count());
    }
    CHECK(seen == std::vector<int>(seen.size(), 1));
  }
}

TEST_CASE("pieces: data written in one cut can be read in any other") {
  for (const auto& written : all_cuts())
    for (const auto& read : all_cuts())
      for (const auto& wanted : read) {
        std::vector<std::int64_t> got(static_cast<std::size_t>(wanted.count()), -1);
        std::int64_t before = -1;
        for (const auto& piece : written)
          detail::for_common_extents(
              piece, wanted, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                detail::Extents runs(piece);  // finds the place in the whole tensor step by step
                while (runs.now().held + runs.now().count <= from) runs.next();
                for (std::int64_t at = 0; at < count; ++at)
                  got[static_cast<std::size_t>(to + at)] =
                      runs.now().whole + from - runs.now().held + at;
              });
        detail::Extents runs(wanted);
        for (const auto whole : got) {
          CHECK(whole > before);
          before = whole;
        }
        CHECK((got.empty() || got.front() == runs.now().whole));
      }
}

TEST_CASE("pieces: a slice of a piece counts from the piece's begin") {
  const auto piece = cut(1, 3, 2)[3];
  const auto slice = piece.slice(2, 5);
  CHECK(slice.range == Range{piece.range.first + 2, piece.range.first + 5});
  CHECK(slice.count() == 3);
  CHECK(slice.bytes() == 12);
}
