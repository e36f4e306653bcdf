#include <dhp/cpu/rotary.hpp>
#include <dhp/cuda/rotary.hpp>
#include <tests/cuda/gpu.hpp>

TEST_CASE_TEMPLATE("rotary positions of packed samples agree with the Cpu", T, double, float, bf16,
                   f16) {
  for (const auto& [heads, size, columns] : {std::tuple{1, 2, 2}, {3, 8, 24}, {2, 6, 40}}) {
    CAPTURE(size);
    const auto there_and_back = [&](auto& side) -> Results {
      std::vector<std::int32_t> at(300);
      for (std::size_t row = 0; row < 300; ++row)
        at[row] = static_cast<std::int32_t>(row * 37 % 1000);
      const auto positions = side.tensor({300}, at);
      auto x = side.elements({300, columns}, 1);
      detail::RotaryOptions options{
          .heads = heads, .base = 500, .row_stride = columns > heads * size ? columns : 0};
      auto view = x.mut();
      view = {view.bytes(), view.dtype(), {300, heads * size}};
      detail::rotary(side.dev, view, positions.view(), options);
      const auto turned = side.values(x.view());
      options.inverse = true;
      detail::rotary(side.dev, view, positions.view(), options);
      return {turned, side.values(x.view())};
    };
    agrees_with_cpu<T>(there_and_back, 2 * tolerance<T>);
  }
}
