// Compressed gradients on the GPU: every op agrees with the Cpu's, bit by bit unless it sums.
#include <dhp/cpu/compression.hpp>
#include <dhp/cuda/compression.hpp>
#include <tests/cuda/gpu.hpp>

TEST_CASE_TEMPLATE("compression: the largest elements are the Cpu's, also among equal ones", T,
                   double, float) {
  for (const std::int64_t count : {1, 255, 3000})
    for (const std::int64_t wanted : {std::int64_t{1}, count / 3 + 1, count}) {
      has_bits_of_cpu<T>([&](auto& side) -> Results {
        auto x = side.elements({count}, 1);
        for (std::int64_t at = 0; at < count; at += 4)
          set_element<T>(side.dev, x.mut(), at, T(1.5));
        auto values = side.fresh({wanted});
        auto indices =
            side.tensor({wanted}, std::vector<std::int32_t>(static_cast<std::size_t>(wanted), -1));
        detail::take_largest(side.dev, x.mut(), indices.mut(), values.mut());
        const auto where = indices.template to_host<std::int32_t>(side.dev);
        return {side.values(x.view()), side.values(values.view()),
                std::vector<double>(where.begin(), where.end())};
      });
    }
}

TEST_CASE_TEMPLATE("compression: signs, levels and error memories have the Cpu's bits", T, double,
                   float) {
  has_bits_of_cpu<T>([&](auto& side) -> Results {
    const auto x = side.elements({1004}, 1);
    auto bits = side.tensor({detail::sign_bytes(1003)}, std::vector<std::uint8_t>(126, 0));
    detail::pack_signs(side.dev, x.view().slice(1, 1004), bits.mut());
    const auto at_odd_address = bits.template to_host<std::uint8_t>(side.dev);
    detail::pack_signs(side.dev, x.view().slice(0, 1003), bits.mut());
    auto y = side.elements({1003}, 2);
    detail::add_signs(side.dev, bits, side.tensor({1}, std::vector<double>{700}), -1, y.mut());
    auto memory = side.elements({1003}, 3);
    auto kept = side.elements({1003}, 4);
    StepState state{.loss_scale = 4, .used_loss_scale = 2};
    detail::keep_if_applied(side.dev, make_step_state(side.dev, state), y, memory.mut());
    state.decision = StepDecision::skip;
    detail::keep_if_applied(side.dev, make_step_state(side.dev, state), y, kept.mut());
    return {side.values(y.view()),
            side.values(memory.view()),
            side.values(kept.view()),
            {at_odd_address.begin(), at_odd_address.end()}};
  });
}

TEST_CASE_TEMPLATE("compression: orthonormal columns agree with the Cpu", T, double, float) {
  agrees_with_cpu<T>([&](auto& side) -> Results {
    auto x = side.elements({300, 5}, 1);
    detail::orthonormalize(side.dev, x.mut(), {.seed = 1});
    return side.results(x);
  });
}
