// The operations on a step's state give the same results on Cuda as on the Cpu.
#include <dhp/cpu/optimizer.hpp>
#include <dhp/cuda/optimizer.hpp>
#include <tests/cuda/gpu.hpp>

TEST_CASE("decide_step agrees with the Cpu on good and bad steps") {
  Gpu gpu;
  Cpu cpu;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  const auto decide = [](auto& dev, std::vector<double> losses,
                         const std::vector<double>& squares) {
    using Dev = std::remove_reference_t<decltype(dev)>;
    auto state = make_step_state(dev, StepState{.loss_scale = 8});
    const auto rows = static_cast<std::int64_t>(losses.size()) / 4;
    decide_step(dev, {.clip = 0.5, .loss_scale = {.dynamic = true}},
                Tensor<Dev>::from_host(dev, {rows, 4}, losses), tensor_of(dev, squares),
                state.mut());
    return read_step_state<Dev>(dev, state);
  };
  std::vector<double> many(1000, 0.25), losses(4 * 700, 1.0);
  CHECK(decide(gpu, losses, many) == decide(cpu, losses, many));
  losses[4 * 500 + 1] = nan;  // not a loss sum
  CHECK(decide(gpu, losses, many) == decide(cpu, losses, many));
  losses[4 * 699] = nan;
  CHECK(decide(gpu, losses, many).decision == StepDecision::skip);
  losses[4 * 699] = -infinite;
  CHECK(decide(gpu, losses, many).decision == StepDecision::skip);
  many[777] = nan;
  CHECK(decide(gpu, {1, 2, 3, 4}, many).decision == StepDecision::skip);
  many[777] = infinite;
  CHECK(decide(gpu, {1, 2, 3, 4}, many).decision == StepDecision::skip);
  CHECK(decide(gpu, {}, {1}) == decide(cpu, {}, {1}));
}

TEST_CASE("objective_scales, update_moving_averages, rates of LARS and LAMB agree with the Cpu") {
  const auto run = []<class T>(auto& dev, TypeTag<T>, std::int64_t skip) {
    using Dev = std::remove_reference_t<decltype(dev)>;
    using A = Accumulator<T>;
    const auto part = [&](auto view) { return view.slice(skip, view.count()); };
    const auto state = make_step_state(
        dev, StepState{.learning_rate = 0.1, .gradient_scale = 0.5, .loss_scale = 8});
    auto scales = tensor_of<double>(dev, {7, 7, 7});
    const auto counts = Tensor<Dev>::from_host(dev, {3}, std::vector<std::int64_t>{4, 0, 32});
    detail::objective_scales(dev, part(counts.view()), state, part(scales.mut()));
    auto value = Tensor<Dev>::from_host(dev, {3}, std::vector<A>{1, 8, -2});
    auto second = Tensor<Dev>::from_host(dev, {1}, std::vector<A>{3});
    const detail::SegmentTable<Dev> table(
        dev, dtype_of<T>(),
        {{.range = {0, 3}, .value = value.mut()}, {.range = {32, 33}, .value = second.mut()}});
    std::vector<A> flat(33, 100);
    std::copy_n(std::vector<A>{12, 0, 4}.begin(), 3, flat.begin());
    const auto sums = Tensor<Dev>::from_host(dev, {33}, flat);
    update_moving_averages(dev, 0.25, 4, table,
                           make_step_state(dev, StepState{.decision = StepDecision::skip}), sums);
    update_moving_averages(dev, 0.25, 4, table, state, sums);
    const auto weights = tensor_of<double>(dev, {4, 4, 0, 9}),
               others = tensor_of<double>(dev, {16, 0, 16, 0});
    auto lars = tensor_of<double>(dev, {7, 7, 7, 7}), lamb = tensor_of<double>(dev, {7, 7, 7, 7});
    detail::lars_rates(dev, {.trust = 0.01, .weight_decay = 0.5}, state, part(weights.view()),
                       part(others.view()), part(lars.mut()));
    detail::lamb_rates(dev, state, part(weights.view()), part(others.view()), part(lamb.mut()));
    auto all = scales.template to_host<double>(dev);
    for (const auto* moved : {&value, &second})
      for (const A each : moved->template to_host<A>(dev)) all.push_back(each);
    for (const auto* rates : {&lars, &lamb})
      for (const double each : rates->template to_host<double>(dev)) all.push_back(each);
    return all;
  };
  Gpu gpu;
  Cpu cpu;
  for (const std::int64_t skip : {0, 1}) {
    const auto same = [&](auto type) {
      CHECK(distance(run(gpu, type, skip), run(cpu, type, skip)) < 1e-15);
    };
    same(TypeTag<double>());
    same(TypeTag<float>());
    same(TypeTag<bf16>());
    same(TypeTag<f16>());
  }
}
