// Segments: a model's parameters as ranges of one flat index space, which gradients and optimizer state share. Segments
// are cut into tiles of a fixed number of elements, so that one launch covers all segments, large and small. The table
// of tiles is built once and lives on the device. Sums are taken per tile and then over a parameter's tiles in order,
// so neighboring segments do not change a bit of a parameter's sum. If replicas hold different tiles (ZeRO), the sums
// of tiles are all-reduced in between.
#pragma once

#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace dhp::detail {
inline constexpr std::int64_t segment_alignment = 32;  ///< segments start at multiples of this
inline constexpr std::int64_t segment_tile = 1 << 14;  ///< elements per tile

/// Returns the number of elements from the start of a segment of `count` elements to the start of the next segment.
[[nodiscard]] constexpr std::int64_t padded_segment(std::int64_t count) {
  return (count + segment_alignment - 1) / segment_alignment * segment_alignment;
}

/// Returns whether `parts` segments of `count` elements each can be adjacent without padding, in any sharding. Either
/// all of them fit into one page (segment_tile elements, see nn/sharded_bucket.hpp), or each consists of whole tiles.
[[nodiscard]] constexpr bool segments_are_adjacent(std::int64_t count, std::int64_t parts) {
  return count % segment_alignment == 0 &&
         (count * parts <= segment_tile || count % segment_tile == 0);
}

/// A parameter, or whole tiles of one. Its values have the accumulation type, or 16 bits with master weights.
template <class Dev>
struct Segment {
  Range range{};               ///< range of flat indices
  View<Dev> value{};           ///< the values that layers read
  int parameter = 0;           ///< index in lists of rates and squared norms
  bool decays = true;          ///< false for biases and norms: no weight decay, no layer-wise rate
  std::int64_t first_sum = 0;  ///< index of the first tile in lists of tile sums
};

/// A range of one segment, in the form that kernels read.
struct SegmentTile {
  std::int64_t first = 0;  ///< flat index of the first element
  std::int64_t last = 0;
  std::byte* value = nullptr;  ///< address of the first element's value
  std::int64_t parameter = 0;
  std::int64_t sum = 0;  ///< index in lists of tile sums
  bool decays = true;
  bool narrow = false;  ///< whether the values have 16 bits
};

/// The range of tile sums that belong to one parameter, or to one piece of a parameter.
struct TileSums {
  std::int64_t first = 0, last = 0, parameter = 0;
  std::int64_t group = 0;  ///< index of the tensor group that has the piece
};

template <class Dev>
class SegmentTable {
 public:
  SegmentTable() = default;  ///< an empty table
  /// Values must have the type `compute` or its accumulation type. The table keeps pointers to the values.
  SegmentTable(Dev& dev, DType compute, std::vector<Segment<Dev>> segments) : compute_(compute) {
    std::vector<TileSums> sums;
    std::int64_t tiles = 0;
    for (auto& segment : segments) {
      segment.first_sum = tiles;
      tiles += tiles_of(segment.range.size());
      sums.push_back({segment.first_sum, tiles, segment.parameter});
    }
    fill(dev, segments, sums);
  }
  /// sums: the tile sums of whole parameters. They may include tiles that are not in this table.
  SegmentTable(Dev& dev, DType compute, const std::vector<Segment<Dev>>& segments,
               const std::vector<TileSums>& sums)
      : compute_(compute) {
    fill(dev, segments, sums);
  }

  [[nodiscard]] static std::int64_t tiles_of(std::int64_t elements) {
    return (elements + segment_tile - 1) / segment_tile;
  }

  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] DType accumulation() const { return accumulation_type(compute_); }
  /// Returns the size of the flat index space.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Returns the length of lists that are indexed by parameter.
  [[nodiscard]] std::int64_t parameters() const { return parameters_; }
  /// Returns the number of tensor groups over which parameters are split.
  [[nodiscard]] std::int64_t groups() const { return groups_; }
  [[nodiscard]] bool has_narrow() const { return has_narrow_; }

  /// Returns the tiles, in device memory.
  [[nodiscard]] const SegmentTile* tiles() const {
    return reinterpret_cast<const SegmentTile*>(tiles_.view().bytes());
  }
  [[nodiscard]] std::int64_t tile_count() const { return tile_count_; }
  /// Returns the length of a list of tile sums.
  [[nodiscard]] std::int64_t sum_count() const { return sum_count_; }
  /// Returns the ranges of tile sums that belong to each parameter, in device memory.
  [[nodiscard]] const TileSums* sums() const {
    return reinterpret_cast<const TileSums*>(sums_.view().bytes());
  }
  [[nodiscard]] std::int64_t summed_parameters() const { return summed_parameters_; }

 private:
  [[gnu::cold]] void fill(Dev& dev, const std::vector<Segment<Dev>>& segments,
                          const std::vector<TileSums>& sums) {
    std::vector<SegmentTile> tiles;
    for (const auto& segment : segments) {
      check_segment(segment);
      cut(segment, tiles);
      size_ = std::max(size_, segment.range.last);
      parameters_ = std::max<std::int64_t>(parameters_, segment.parameter + 1);
    }
    for (const auto& of : sums) {
      sum_count_ = std::max(sum_count_, of.last);
      parameters_ = std::max<std::int64_t>(parameters_, of.parameter + 1);
      groups_ = std::max<std::int64_t>(groups_, of.group + 1);
    }
    tile_count_ = std::ssize(tiles);
    summed_parameters_ = std::ssize(sums);
    tiles_ = on_device<SegmentTile>(dev, tiles);
    sums_ = on_device<TileSums>(dev, sums);
  }
  void check_segment(const Segment<Dev>& segment) const {
    const auto& value = segment.value;
    check(segment.range.size() == value.count() && segment.range.first % segment_alignment == 0 &&
              reinterpret_cast<std::uintptr_t>(value.bytes()) % 16 == 0,
          "parameter ", segment.parameter, " has ", segment.range.size(), " elements of ",
          value.shape(), " values of ", value.dtype(),
          ": a segment has as many elements as values, begins at a multiple of ", segment_alignment,
          " elements, and its values at a multiple of 16 bytes");
    check(value.dtype() == accumulation() || value.dtype() == compute_, "the values of parameter ",
          segment.parameter, " are of ", value.dtype(), ", neither of ", compute_, " nor of ",
          accumulation());
  }
  void cut(const Segment<Dev>& segment, std::vector<SegmentTile>& tiles) {
    const bool narrow = segment.value.dtype() != accumulation();
    has_narrow_ |= narrow;
    const auto& range = segment.range;
    auto sum = segment.first_sum;
    for (auto first = range.first; first < range.last; first += segment_tile)
      tiles.push_back(
          {first, std::min(first + segment_tile, range.last),
           segment.value.bytes() + as_size(first - range.first) * size_of(segment.value.dtype()),
           segment.parameter, sum++, segment.decays, narrow});
  }
  template <class Row>
  [[nodiscard]] static Tensor<Dev> on_device(Dev& dev, const std::vector<Row>& rows) {
    const auto bytes = std::as_bytes(std::span(rows));
    Tensor<Dev> result(dev, DType::u8, {std::ssize(bytes)});
    if (!bytes.empty()) dev.copy_from_host(result.mut().bytes(), bytes.data(), bytes.size());
    return result;
  }

  DType compute_ = DType::f32;
  std::int64_t size_ = 0, parameters_ = 0, tile_count_ = 0, sum_count_ = 0;
  std::int64_t summed_parameters_ = 0, groups_ = 1;
  bool has_narrow_ = false;
  Tensor<Dev> tiles_;  // rows of SegmentTile
  Tensor<Dev> sums_;   // rows of TileSums
};

/// Throws Error unless `flat` has at least the table's size, its accumulation type, and an address aligned to 16 bytes.
template <Device Dev>
void check_flat(const char* op, const char* what, const SegmentTable<Dev>& table,
                ConstView<Dev> flat) {
  if (table.size() == 0) return;
  if (flat.count() < table.size() || flat.dtype() != table.accumulation())
    fail(op, ": ", what, " ", flat.shape(), " of ", flat.dtype(), " does not fit ", table.size(),
         " weights that are accumulated in ", table.accumulation());
  check(reinterpret_cast<std::uintptr_t>(flat.bytes()) % 16 == 0, op, ": ", what,
        " does not begin at a multiple of 16 bytes");
}
/// Checks the master weights like check_flat(), if the table has 16-bit weights. Other weights have no masters.
template <Device Dev>
void check_masters(const char* op, const SegmentTable<Dev>& table, ConstView<Dev> masters) {
  if (table.has_narrow()) check_flat(op, "the masters", table, masters);
}
template <Device Dev>
void check_by_parameter(const char* op, const char* what, const SegmentTable<Dev>& table,
                        ConstView<Dev> list) {
  if (list.dtype() != DType::f64 || list.count() < table.parameters())
    fail(op, ": ", what, " of ", table.parameters(), " parameters are f64, got ", list.dtype(), " ",
         list.shape());
}

template <Device Dev>
void check_sums(const char* op, const SegmentTable<Dev>& table, ConstView<Dev> sums) {
  if (sums.dtype() != DType::f64 || sums.count() != table.sum_count())
    fail(op, ": the sums of ", table.sum_count(), " tiles are f64, got ", sums.dtype(), " ",
         sums.shape());
}

/// sums[tile.sum] = the sum of squares of the tile's part of x, in double. Sums of tiles outside this table are
/// unchanged. x [table.size()]; sums f64 [table.sum_count()].
template <Device Dev>
void tile_squares(Dev& dev, const SegmentTable<Dev>& table, InView<Dev> x, OutView<Dev> sums) {
  check_flat<Dev>("tile_squares", "the tensor", table, x);
  check_sums<Dev>("tile_squares", table, sums);
  if (table.tile_count() > 0) tile_squares_on(dev, table, x, false, sums);
}
/// Like tile_squares, for weights: masters [table.size()] if values have 16 bits, else values. sums f64
/// [table.sum_count()].
template <Device Dev>
void tile_weight_squares(Dev& dev, const SegmentTable<Dev>& table, InView<Dev> masters,
                         OutView<Dev> sums) {
  check_masters<Dev>("tile_weight_squares", table, masters);
  check_sums<Dev>("tile_weight_squares", table, sums);
  if (table.tile_count() > 0) tile_squares_on(dev, table, masters, true, sums);
}
/// squares[group * stride + parameter] = the sum of the parameter's tile sums, in order. Other entries are unchanged.
/// sums f64 [table.sum_count()], squares f64 [table.parameters() or more].
template <Device Dev>
void sum_tiles(Dev& dev, const SegmentTable<Dev>& table, InView<Dev> sums, OutView<Dev> squares,
               std::int64_t stride = 0) {
  check_sums<Dev>("sum_tiles", table, sums);
  check_by_parameter<Dev>("sum_tiles", "squares", table, squares);
  check(
      table.groups() == 1 || squares.count() >= (table.groups() - 1) * stride + table.parameters(),
      "sum_tiles: squares ", squares.shape(), " of ", table.groups(), " groups ", stride, " apart");
  if (table.summed_parameters() > 0) sum_tiles_on(dev, table, sums, squares, stride);
}

/// Returns a pointer to a tile's elements: to the values if these are weights of more than 16 bits, else into `flat`.
template <class A>
struct TileSource {
  const A* flat;
  bool weights;
  constexpr const A* operator()(const SegmentTile& tile) const {
    return weights && !tile.narrow ? reinterpret_cast<const A*>(tile.value) : flat + tile.first;
  }
};
}  // namespace dhp::detail
