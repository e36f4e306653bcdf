#include <dhp/cpu/compression.hpp>
#include <tests/support/tensors.hpp>

TEST_CASE("compression: the largest elements are moved out, first of equals, NaN before infinity") {
  Cpu dev;
  const double nan = std::nan("");
  auto x = tensor_of<double>(dev, {1, -3, 2, 3, -HUGE_VAL, 0, nan, 2});
  Tensor<Cpu> indices(dev, DType::i32, {5}), values(dev, DType::f64, {5});
  dhp::detail::take_largest(dev, x.mut(), indices.mut(), values.mut());
  CHECK(indices.to_host<std::int32_t>(dev) == std::vector<std::int32_t>{1, 2, 3, 4, 6});
  CHECK(x.to_host<double>(dev) == std::vector<double>{1, 0, 0, 0, 0, 0, 0, 2});
  const auto taken = values.to_host<double>(dev);
  CHECK(std::vector<double>(taken.begin(), taken.end() - 1) ==
        std::vector<double>{-3, 2, 3, -HUGE_VAL});
  CHECK(std::isnan(taken.back()));
}

TEST_CASE("compression: signs take one bit each, and return with the mean magnitude") {
  Cpu dev;
  const auto x = tensor_of<float>(dev, {1, -2, 0, 4, -5, 6, 7, -8, 3});
  Tensor<Cpu> bits(dev, DType::u8, {dhp::detail::sign_bytes(x.count())});
  dhp::detail::pack_signs(dev, x, bits.mut());
  CHECK(bits.to_host<std::uint8_t>(dev) == std::vector<std::uint8_t>{0b01101101, 1});
  auto y = tensor_of<float>(dev, std::vector<float>(9, 1));
  dhp::detail::add_signs(dev, bits, tensor_of<double>(dev, {36}), 0.5, y.mut());
  CHECK(y.to_host<float>(dev) == std::vector<float>{3, -1, 3, 3, -1, 3, 3, -1, 3});
}

TEST_CASE_TEMPLATE("compression: columns become orthonormal, even if they depend on each other", T,
                   float, double) {
  Cpu dev;
  auto values = random_doubles({50, 4}, 1);
  for (std::size_t row = 0; row < 50; ++row) {
    values[4 * row + 1] = 3 * values[4 * row];  // column 1 depends on column 0
    values[4 * row + 2] = 0;
  }
  Tensor<Cpu> x(dev, dtype_of<T>(), {50, 4});
  cast(dev, Tensor<Cpu>::from_host(dev, {50, 4}, values), x.mut());
  const auto first = widened(x);
  dhp::detail::orthonormalize(dev, x.mut(), {.seed = 1});
  const auto result = widened(x);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 4; ++b) {
      double product = 0;
      for (std::size_t row = 0; row < 50; ++row)
        product += result[4 * row + a] * result[4 * row + b];
      CHECK(product == doctest::Approx(a == b ? 1 : 0).epsilon(1e-5));
    }
  CHECK(result[0] / result[4] == doctest::Approx(first[0] / first[4]));
}

TEST_CASE("compression: a skipped step does not replace the memory, only its loss scale changes") {
  Cpu dev;
  const auto result = tensor_of<float>(dev, {8, HUGE_VALF});
  const StepState applied{.loss_scale = 4, .used_loss_scale = 2};
  auto skipped = applied;
  skipped.decision = StepDecision::skip;
  for (const auto& state : {applied, skipped}) {
    auto memory = tensor_of<float>(dev, {1, 2});
    dhp::detail::keep_if_applied(dev, make_step_state<Cpu>(dev, state), result, memory.mut());
    CHECK(memory.to_host<float>(dev) ==
          (state.applies() ? std::vector<float>{16, HUGE_VALF} : std::vector<float>{2, 4}));
  }
}
