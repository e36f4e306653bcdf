// Rows and columns on the GPU: copied bit by bit, and summed by entry. Lists of rows have lengths around long_list, and
// there are more rows than one tile of the sort.
#include <dhp/cpu/rows.hpp>
#include <dhp/cuda/rows.hpp>
#include <tests/cuda/gpu.hpp>

namespace {

std::vector<std::int32_t> host_of(Gpu& gpu, const Tensor<Gpu>& tensor) {
  return tensor.to_host<std::int32_t>(gpu);
}

}  // namespace

TEST_CASE("exclusive sums are right for fewer and for more counts than threads") {
  Gpu gpu;
  for (const std::int64_t count : {1, 1000, 1024, 2500}) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::size_t at = 0; at < values.size(); ++at)
      values[at] = static_cast<std::int32_t>(at * 37 % 11);
    auto on_gpu = tensor_of(gpu, values);
    detail::cuda::exclusive_sum(gpu, count, on_gpu.mut().data<std::int32_t>());
    std::exclusive_scan(values.begin(), values.end(), values.begin(), 0);
    CHECK(host_of(gpu, on_gpu) == values);
  }
}

TEST_CASE("rows are grouped by entry, in their order, for any number of entries") {
  Gpu gpu;
  for (const std::int64_t rows : {0, 1, 133, 1100})
    for (const std::int64_t entries : {1, 255, 256, 70000}) {
      if (rows > 1024 && entries < 256) continue;
      INFO("rows ", rows, " entries ", entries);
      // Ids begin at -3, so some are outside the table. Some entries have many rows.
      std::vector<std::int32_t> ids;
      for (std::int64_t row = 0; row < rows; ++row)
        ids.push_back(
            static_cast<std::int32_t>((row % 3 == 0 ? row * 7919 : row % 5) % (entries + 2) - 3));
      const auto skip = rows % 2;  // odd: no packs
      auto behind = ids;
      behind.insert(behind.begin(), static_cast<std::size_t>(skip), 0);
      const auto grouped = detail::cuda::group_rows(
          gpu, tensor_of(gpu, behind).view().slice(skip, rows + skip), std::int64_t{-2}, entries);

      std::vector<std::int32_t> order(ids.size()), keys;
      std::iota(order.begin(), order.end(), 0);
      const auto entry = [&](std::int32_t row) {
        const auto id = std::int64_t{ids[static_cast<std::size_t>(row)]} + 2;
        return static_cast<std::int32_t>(id >= 0 && id < entries ? id : entries);
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](auto a, auto b) { return entry(a) < entry(b); });
      for (const auto row : order) keys.push_back(entry(row));
      CHECK(host_of(gpu, grouped.keys) == keys);
      if (rows > 0) CHECK(host_of(gpu, grouped.rows) == order);
      const auto starts = host_of(gpu, grouped.starts);
      CHECK(starts.size() == static_cast<std::size_t>(entries + 1));
      bool right = true;
      for (std::size_t at = 0; at < starts.size(); ++at)
        right &= starts[at] ==
                 std::lower_bound(keys.begin(), keys.end(), static_cast<std::int32_t>(at)) -
                     keys.begin();
      CHECK(right);
    }
}

TEST_CASE("each part of a long row list has its own slot") {
  // Lists of all lengths around the limits, in turn.
  const std::int32_t lengths[] = {1,   64, 65, 63, 128, 129, 0,  127, 66, 1,
                                  200, 65, 65, 64, 300, 2,   65, 191, 0,  192};
  std::vector<std::int32_t> keys, starts;
  for (const auto length : lengths) {
    starts.push_back(static_cast<std::int32_t>(keys.size()));
    keys.insert(keys.end(), static_cast<std::size_t>(length),
                static_cast<std::int32_t>(starts.size()) - 1);
  }
  const auto entries = static_cast<std::int64_t>(starts.size());
  starts.push_back(static_cast<std::int32_t>(keys.size()));
  keys.insert(keys.end(), 100, static_cast<std::int32_t>(entries));  // rows outside the table
  const detail::cuda::RowLists lists{static_cast<std::int64_t>(keys.size()), entries, nullptr,
                                     keys.data(), starts.data()};
  std::vector<int> summed(keys.size(), 0);
  for (std::int64_t slot = 0; slot < 2 * lists.windows(); ++slot) {
    const auto part = lists.part_in(slot);
    for (auto at = part.first; at < part.last; ++at) {
      CHECK(keys[static_cast<std::size_t>(at)] == part.entry);
      ++summed[static_cast<std::size_t>(at)];
    }
    if (part.first == part.last) continue;
    const auto list = lists.all_of(part.entry);
    CHECK((part.first - list.first) % detail::cuda::long_list == 0);
    CHECK(lists.slot_of(list, (part.first - list.first) / detail::cuda::long_list) == slot);
  }
  std::vector<int> begun(static_cast<std::size_t>(entries), 0);
  for (std::int64_t window = 0; window < lists.windows(); ++window) {
    const auto list = lists.beginning_in(window);
    if (list.first != list.last) ++begun[static_cast<std::size_t>(list.entry)];
  }
  for (std::size_t at = 0; at < keys.size(); ++at) {
    const bool is_long = keys[at] < entries && lengths[keys[at]] > detail::cuda::long_list;
    CHECK(summed[at] == (is_long ? 1 : 0));
  }
  for (std::size_t entry = 0; entry < begun.size(); ++entry)
    CHECK(begun[entry] == (lengths[entry] > detail::cuda::long_list ? 1 : 0));
}

TEST_CASE_TEMPLATE("copy_columns cuts and joins at any column", T, double, float, bf16, f16) {
  Gpu gpu;
  for (const std::int64_t cut : {1, 2, 4, 8, 11}) {
    const auto x = random_on<T>(gpu, {2, 19, 16}, 1);
    Tensor<Gpu> left(gpu, dtype_of<T>(), Shape{38, cut});
    Tensor<Gpu> right(gpu, dtype_of<T>(), Shape{38, 16 - cut});
    copy_columns(gpu, x, 0, left.mut(), 0, cut);
    copy_columns(gpu, x, cut, right.mut(), 0, 16 - cut);
    Tensor<Gpu> y(gpu, dtype_of<T>(), {38, 16});
    copy_columns(gpu, right, 0, y.mut(), cut, 16 - cut);
    copy_columns(gpu, left, 0, y.mut(), 0, cut);
    CHECK(widened(gpu, y) == widened(gpu, x));
  }
}

TEST_CASE("copies of rows and columns work for integers, bytes and no elements") {
  on_gpu_and_cpu<float>([](auto& side) {
    auto& dev = side.dev;
    const auto x = side.tensor({2, 3}, std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
    auto y = side.tensor({2, 2}, std::vector<std::int64_t>(4));
    copy_columns(dev, x, 1, y.mut(), 1, 1);
    copy_columns(dev, x, 3, y.mut(), 2, 0);
    CHECK(y.template to_host<std::int64_t>(dev) == std::vector<std::int64_t>{0, 2, 0, 5});
    const auto bytes = side.tensor({2, 3}, std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6});
    auto taken = side.tensor({3, 3}, std::vector<std::uint8_t>(9));
    gather_rows(dev, bytes, side.tensor({3}, std::vector<std::int32_t>{1, 0, 1}), taken.mut());
    CHECK(taken.template to_host<std::uint8_t>(dev) ==
          std::vector<std::uint8_t>{4, 5, 6, 1, 2, 3, 4, 5, 6});

    auto none = side.fresh({0, 4}), some = side.tensor({3, 4}, std::vector<float>(12));
    const auto index = side.tensor({0}, std::vector<std::int32_t>());
    gather_rows(dev, some, index, none.mut());
    scatter_add_rows(dev, none, index, some.mut());
    copy_columns(dev, none, 0, none.mut(), 0, 4);
    CHECK(side.values(some.view()) == std::vector<double>(12, 0.0));
  });
}

TEST_CASE_TEMPLATE("gather_rows gives NaN for a missing row", T, double, float, bf16, f16) {
  Gpu gpu;
  for (const std::int64_t columns : {1, 6, 16, 331}) {
    const auto x = random_on<T>(gpu, {5, columns}, 1);
    const auto values = widened(gpu, x);
    const std::vector<std::int32_t> index{3, 0, 5, 4, -1, 3};
    auto y = Tensor<Gpu>::zeros(gpu, dtype_of<T>(), Shape{6, columns});
    gather_rows(gpu, x, tensor_of(gpu, index), y.mut());
    const auto got = widened(gpu, y);
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < got.size(); ++at) {
      const auto wide = static_cast<std::size_t>(columns);
      const auto from = index[at / wide];
      wrong += from < 0 || from >= 5
                   ? !std::isnan(got[at])
                   : got[at] != values[static_cast<std::size_t>(from) * wide + at % wide];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("scatter_add rounds the sum of rows once", T, double, float, bf16, f16) {
  for (const std::int64_t columns : {1, 24}) {
    // Entry 1 has 150 rows, entry 4 has 64, 5 has 65, entries 3 and 6 none.
    std::vector<std::int32_t> index;
    for (int i = 0; i < 150; ++i) {
      index.push_back(1);
      if (i < 64) index.push_back(4);
      if (i < 65) index.push_back(5);
      if (i % 40 == 0) index.push_back(i % 80 == 0 ? 0 : 2);
    }
    const auto rows = static_cast<std::int64_t>(index.size());
    agrees_with_cpu<T>([&](auto& side) -> Results {
      auto dx = side.elements({7, columns}, 2);
      scatter_add_rows(side.dev, side.elements({rows, columns}, 1), side.tensor({rows}, index),
                       dx.mut());
      return side.results(dx);
    });
  }
}

TEST_CASE("scatter_add_rows adds few rows in order to the old values, and skips invalid entries") {
  Gpu gpu;
  // In this order the first two terms cancel; in any other order the 1 is lost.
  const auto dy =
      Tensor<Gpu>::from_host(gpu, {5, 1}, std::vector<float>{1e30f, -1e30f, 7.0f, 1.0f, 8.0f});
  auto dx = Tensor<Gpu>::from_host(gpu, {2, 1}, std::vector<float>{5.0f, 0.0f});
  scatter_add_rows(gpu, dy, tensor_of<std::int32_t>(gpu, {1, 1, 2, 1, -1}), dx.mut());
  CHECK(dx.to_host<float>(gpu) == std::vector<float>{5, 1});
}
