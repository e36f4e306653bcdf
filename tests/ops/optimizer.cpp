// Optimizer updates against numbers that PyTorch 1.13 printed, and refusals. The tests in optim/ check the formulas.
#include <dhp/cpu/optimizer.hpp>
#include <dhp/cpu/segments.hpp>
#include <tests/support/weights.hpp>

namespace {

// Segments of one element, of none, with and without decay, with 16-bit values and without.
const std::vector<Kind> some_of_each{
    {1}, {501}, {7, false}, {0}, {9, false, true}, {64, true, true}, {455}};

std::vector<std::vector<double>> values_of(const std::vector<Tensor<Cpu>*>& tensors) {
  std::vector<std::vector<double>> values;
  for (const auto* tensor : tensors) values.push_back(widened(*tensor));
  return values;
}

}  // namespace

TEST_CASE("rates of LARS and LAMB: follow the norms, or are the learning rate if a norm is zero") {
  Cpu dev;
  const auto state = make_step_state(dev, {.learning_rate = 0.5, .gradient_scale = 0.25});
  const auto weights = tensor_of<double>(dev, {4, 4, 0, 9}),
             others = tensor_of<double>(dev, {16, 0, 16, 0});
  Tensor<Cpu> rates(dev, DType::f64, {4});
  detail::lars_rates(dev, {.trust = 0.01, .weight_decay = 0.5}, state, weights, others,
                     rates.mut());
  // |w| = 2, |g| = 4 / 4, decay |w| = 1. Then: no gradient, only decay; no weight, so the rate is lr.
  CHECK(distance(widened(rates), {0.5 * 0.01 * 2 / 2, 0.5 * 0.01 * 2, 0.5, 0.5 * 0.01 * 2}) <
        1e-16);
  detail::lamb_rates(dev, state, weights, others, rates.mut());
  CHECK(widened(rates) == std::vector<double>{0.25, 0.5, 0.5, 0.5});
}

TEST_CASE("optimizers: three steps in double match PyTorch 1.13") {
  // torch.optim with w = [0.5, -1.25, 2] and gradients [1, -2, 0.5], [0.25, 4, -1], [-3, 0.125, 0].
  Cpu dev;
  const std::vector<std::vector<double>> gradients{{1, -2, 0.5}, {0.25, 4, -1}, {-3, 0.125, 0}};
  const auto train = [&](auto step) {
    Weights<Cpu, double> w(dev, {{3}});
    const double start[] = {0.5, -1.25, 2};
    std::copy_n(start, 3, w.exact.mut().data<double>());
    for (std::size_t k = 0; k < 3; ++k) {
      std::copy_n(gradients[k].data(), 3, w.gradient.mut().data<double>());
      step(w, static_cast<double>(k + 1));
    }
    const double* end = w.exact.view().data<double>();
    return std::vector<double>(end, end + 3);
  };
  for (const bool nesterov : {false, true}) {
    const auto got = train([&](Weights<Cpu, double>& w, double) {
      sgd_update(dev, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov}, w.table,
                 make_step_state(dev, {.learning_rate = 0.1}), {}, w.gradient, w.m.mut(), {});
    });
    const std::vector<double> expected =
        nesterov ? std::vector<double>{0.6554518146705001, -1.66052035462625, 2.083133359332}
                 : std::vector<double>{0.47910229950000005, -1.47385329875, 2.043379548};
    CHECK(distance(got, expected) < 1e-14);
  }
  const auto got = train([&](Weights<Cpu, double>& w, double step) {
    const StepState now{.learning_rate = 0.1, .updates = static_cast<std::int64_t>(step)};
    detail::adamw_update(dev, {.beta2 = 0.99, .weight_decay = 0.05}, w.table,
                         make_step_state(dev, now), w.gradient, w.m.mut(), w.v.mut(), {});
  });
  CHECK(distance(got, std::vector<double>{0.3501587900163379, -1.1988213035693065,
                                          1.9358511088981152}) < 1e-14);
}

TEST_CASE_TEMPLATE("optimizers: threads change no bit", T, double, float, bf16) {
  CHECK(same_on_threads([](Cpu& dev) {
    Weights<Cpu, T> w(dev, kinds_around_a_tile());
    const auto now = make_step_state(dev, {.learning_rate = 0.01, .updates = 1});
    detail::adamw_update(dev, {.weight_decay = 0.1}, w.table, now, w.gradient, w.m.mut(), w.v.mut(),
                         w.masters.mut());
    sgd_update(dev, {.momentum = 0.9}, w.table, now, {}, w.gradient, w.m.mut(), w.masters.mut());
    return values_of(w.written());
  }));
}

TEST_CASE("optimizers: a skipped step and an empty table change nothing") {
  Cpu dev;
  Weights<Cpu, bf16> none(dev, {}), empty(dev, {{0}}), some(dev, some_of_each);
  const auto go = make_step_state(dev, {.learning_rate = 0.1, .updates = 1});
  const auto stay =
      make_step_state(dev, {.learning_rate = 0.1, .updates = 1, .decision = StepDecision::skip});
  const auto rates = tensor_of(dev, std::vector<double>(some_of_each.size(), 1.0));
  const auto unchanged = [&](Weights<Cpu, bf16>& w, const Tensor<Cpu>& now) {
    const auto before = values_of(w.written());
    sgd_update(dev, {.momentum = 0.9}, w.table, now, {}, w.gradient, w.m.mut(), w.masters.mut());
    detail::adamw_update(dev, {}, w.table, now, w.gradient, w.m.mut(), w.v.mut(), w.masters.mut());
    (void)lamb_squares_of(dev, {}, w, now);
    detail::lamb_update(dev, {}, w.table, now, rates, w.gradient, w.m.mut(), w.v.mut(),
                        w.masters.mut());
    return before == values_of(w.written());
  };
  CHECK(unchanged(none, go));
  CHECK(unchanged(empty, go));
  CHECK(unchanged(some, stay));
  CHECK(!unchanged(some, go));
}

TEST_CASE("optimizers: operands that do not fit are refused") {
  Cpu dev;
  Weights<Cpu, bf16> w(dev, {{4}, {40}});
  const auto now = make_step_state(dev, {.learning_rate = 0.1, .updates = 1});
  const auto rates = tensor_of<double>(dev, {1, 1});
  const auto small = random_tensor<float>(dev, {71}, 1);
  const auto sgd = [&](const detail::SgdUpdate& update, InView<Cpu> state, InView<Cpu> of_weights,
                       InView<Cpu> gradient) {
    return message_of([&] {
      sgd_update(dev, update, w.table, state, of_weights, gradient, {}, w.masters.mut());
    });
  };
  CHECK(sgd({}, now, {}, small) ==
        "sgd_update: the gradient [71] of f32 does not fit 72 weights that are accumulated in f32");
  CHECK(sgd({}, now, {}, w.gradient.view().slice(1, 96)) ==
        "sgd_update: the gradient does not begin at a multiple of 16 bytes");
  CHECK(sgd({.momentum = 0.9}, now, {}, w.gradient) ==
        "sgd_update: momentum 0.9 needs a buffer for it");
  CHECK(sgd({}, now, rates.view().slice(0, 1), w.gradient) ==
        "sgd_update: rates of 2 parameters are f64, got f64 [1]");
  CHECK(sgd({}, rates, {}, w.gradient) ==
        concat("the state of a step is u8 [", detail::step_state_bytes, "], got f64 [2]"));
  CHECK(message_of([&] { sgd_update(dev, {}, w.table, now, {}, w.gradient, {}, {}); }) ==
        "sgd_update: the masters [] of f32 does not fit 72 weights that are accumulated in f32");
  auto wide = random_tensor<double>(dev, {96}, 1);
  CHECK(message_of([&] {
          detail::adamw_update(dev, {}, w.table, now, w.gradient, wide.mut(), w.v.mut(),
                               w.masters.mut());
        }) == "adamw_update: m [96] of f64 does not fit 72 weights that are accumulated in f32");
  CHECK(message_of([&] {
          detail::lamb_update(dev, {}, w.table, now, {}, w.gradient, w.m.mut(), w.v.mut(),
                              w.masters.mut());
        }) == "lamb_update: rates of 2 parameters are f64, got f32 []");
  CHECK(message_of([&] { update_moving_averages(dev, -1, 1, w.table, now, w.gradient); }) ==
        "update_moving_averages: the momentum, the weight of new values, lies in 0..1, got -1");
  auto sums = tensor_of<double>(dev, {0, 0});
  CHECK(message_of([&] {
          detail::lamb_squares(dev, {}, w.table, now, w.gradient, w.m, w.v, w.masters, sums.mut(),
                               sums.mut().slice(0, 1));
        }) == "lamb_squares: the sums of 2 tiles are f64, got f64 [1]");
}
