// Optimizer updates against PyTorch's formulas for one scalar, and against numbers that PyTorch 1.13 printed.
#include <dhp/cpu/optimizer.hpp>
#include <dhp/cpu/segments.hpp>
#include <tests/support/weights.hpp>

namespace {

// One weight with its state, in double.
struct Scalar {
  double w = 0, m = 0, v = 0;
};

// What a case needs beside the state: options of the update and what is read on the device.
struct Sgd {
  detail::SgdUpdate update{};
  StepState now{};
};
struct Adam {
  detail::AdamUpdate update{};
  StepState now{};
};

// w after one step along g at a rate and with a decay.
void sgd(Scalar& s, const Sgd& with, double decay, double rate, double gradient) {
  const auto& u = with.update;
  double g = with.now.gradient_scale * gradient;
  g += decay * s.w;
  if (u.momentum != 0) {
    s.m = u.momentum * s.m + g;
    g = u.nesterov ? g + u.momentum * s.m : s.m;
  }
  s.w -= rate * g;
}
double adam_quotient(Scalar& s, const Adam& with, double gradient) {
  const auto& u = with.update;
  const double g = with.now.gradient_scale * gradient;
  const auto step = static_cast<double>(with.now.updates);
  s.m = u.beta1 * s.m + (1 - u.beta1) * g;
  s.v = u.beta2 * s.v + (1 - u.beta2) * g * g;
  const double mean = s.m / (1 - std::pow(u.beta1, step));
  return mean / (std::sqrt(s.v / (1 - std::pow(u.beta2, step))) + u.epsilon);
}
void adamw(Scalar& s, const Adam& with, double decay, double gradient) {
  s.w *= 1 - with.now.learning_rate * decay;
  s.w -= with.now.learning_rate * adam_quotient(s, with, gradient);
}

// Single elements, nothing, with and without decay, values of 16 bits and not.
const std::vector<Kind> some_of_each{
    {1}, {501}, {7, false}, {0}, {9, false, true}, {64, true, true}, {455}};

std::vector<std::vector<double>> values_of(const std::vector<Tensor<Cpu>*>& tensors) {
  std::vector<std::vector<double>> values;
  for (const auto* tensor : tensors) values.push_back(widened(*tensor));
  return values;
}

template <class T>
struct State : Weights<Cpu, T> {
  using A = Accumulator<T>;
  explicit State(Cpu& dev, const std::vector<Kind>& all = some_of_each)
      : Weights<Cpu, T>(dev, all) {
    for (std::size_t k = 0; k < this->kinds.size(); ++k)
      for (auto at = this->firsts[k]; at < this->firsts[k] + this->kinds[k].count; ++at)
        expected.push_back({.w = weight(k, at)});
    before = values_of(this->written());
  }
  double weight(std::size_t k, std::int64_t at) {
    const auto& from = this->is_narrow(this->kinds[k]) ? this->masters : this->exact;
    return static_cast<double>(from.view().template data<A>()[at]);
  }

  // step(scalar, kind, parameter, gradient) for all elements.
  template <class Step>
  void expect(Step step) {
    auto scalar = expected.begin();
    for (std::size_t k = 0; k < this->kinds.size(); ++k)
      for (auto at = this->firsts[k]; at < this->firsts[k] + this->kinds[k].count; ++at)
        step(*scalar++, this->kinds[k], this->parameter(k),
             static_cast<double>(this->gradient.view().template data<A>()[at]));
  }

  // Weights and state are the expected ones, values are the weights, rounded, and all else is as it was.
  void check_against_expected() {
    const auto all = values_of(this->written());
    auto wanted = before;
    auto scalar = expected.begin();
    for (std::size_t k = 0; k < this->kinds.size(); ++k)
      for (auto flat = this->firsts[k]; flat < this->firsts[k] + this->kinds[k].count; ++flat) {
        const auto at = static_cast<std::size_t>(flat);
        const bool narrow = this->is_narrow(this->kinds[k]);
        wanted[0][at] = scalar->m;
        wanted[1][at] = scalar->v;
        wanted[narrow ? 2 : 3][at] = scalar->w;
        if (narrow) wanted[4][at] = static_cast<double>(static_cast<T>(static_cast<A>(all[2][at])));
        ++scalar;
      }
    const double tolerance = std::is_same_v<T, double> ? 1e-13 : 2e-5;
    for (std::size_t which = 0; which < 4; ++which)
      CHECK(distance(all[which], wanted[which]) < tolerance);
    CHECK(all[4] == wanted[4]);
  }

  std::vector<Scalar> expected;
  std::vector<std::vector<double>> before;
};

// body(dev, state, step) for five steps along as many gradients.
template <class T, class Body>
void five_steps(Body body) {
  Cpu dev({.threads = 2});
  State<T> state(dev);
  for (std::uint32_t step = 1; step <= 5; ++step) {
    state.gradient = state.template random<Accumulator<T>>(dev, 10 + step);
    body(dev, state, step);
    state.check_against_expected();
  }
}

}  // namespace

TEST_CASE_TEMPLATE("SGD: momentum, Nesterov, decay, scale", T, double, float, bf16, f16) {
  const std::vector<Sgd> cases{
      {{}, {.learning_rate = 0.1}},
      {{.weight_decay = 0.01}, {.learning_rate = 0.1, .gradient_scale = 0.25}},
      {{.momentum = 0.9}, {.learning_rate = 0.05}},
      {{.momentum = 0.9, .weight_decay = 0.1}, {.learning_rate = 0.05, .gradient_scale = 0.5}},
      {{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
       {.learning_rate = 0.05, .gradient_scale = 2}}};
  for (const auto& with : cases)
    five_steps<T>([&](Cpu& dev, State<T>& state, std::uint32_t) {
      const View<Cpu> momentum = with.update.momentum == 0 ? View<Cpu>() : state.m.mut();
      const auto now = make_step_state(dev, with.now);
      sgd_update(dev, with.update, state.table, now, {}, state.gradient, momentum,
                 state.masters.mut());
      state.expect([&](Scalar& s, const Kind& kind, std::size_t, double gradient) {
        sgd(s, with, kind.decays ? with.update.weight_decay : 0, with.now.learning_rate, gradient);
      });
    });
}

TEST_CASE_TEMPLATE("SGD: a rate inside the momentum, as LARS has it", T, double, float, bf16) {
  const Sgd with{{.momentum = 0.9, .weight_decay = 0.1, .rate_in_momentum = true},
                 {.learning_rate = 0.07, .gradient_scale = 0.5}};
  five_steps<T>([&](Cpu& dev, State<T>& state, std::uint32_t step) {
    std::vector<double> rates;
    for (std::size_t k = 0; k < state.kinds.size(); ++k)
      rates.push_back(0.1 / (step + static_cast<double>(k)));
    const auto now = make_step_state(dev, with.now);
    sgd_update(dev, with.update, state.table, now, tensor_of(dev, rates), state.gradient,
               state.m.mut(), state.masters.mut());
    state.expect([&](Scalar& s, const Kind& kind, std::size_t parameter, double gradient) {
      const double rate = kind.decays ? rates[parameter] : with.now.learning_rate;
      s.m = 0.9 * s.m + rate * (0.5 * gradient + (kind.decays ? 0.1 : 0) * s.w);
      s.w -= s.m;
    });
  });
}

TEST_CASE_TEMPLATE("AdamW: bias correction, decay apart", T, double, float, bf16, f16) {
  const std::vector<Adam> cases{
      {{}, {.learning_rate = 0.01}},
      {{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1},
       {.learning_rate = 0.01, .gradient_scale = 0.125}}};
  for (const auto& with : cases)
    five_steps<T>([&](Cpu& dev, State<T>& state, std::uint32_t step) {
      auto current = with;
      current.now.updates = step;
      detail::adamw_update(dev, with.update, state.table, make_step_state(dev, current.now),
                           state.gradient, state.m.mut(), state.v.mut(), state.masters.mut());
      state.expect([&](Scalar& s, const Kind& kind, std::size_t, double gradient) {
        adamw(s, current, kind.decays ? with.update.weight_decay : 0, gradient);
      });
    });
}

TEST_CASE_TEMPLATE("LAMB: squared norms of directions, then a step", T, double, float, f16) {
  five_steps<T>([&](Cpu& dev, State<T>& state, std::uint32_t step) {
    const Adam with{{.weight_decay = 0.02},
                    {.learning_rate = 0.05, .updates = step, .gradient_scale = 0.5}};
    const auto now = make_step_state(dev, with.now);
    const auto count = state.kinds.size();
    std::vector<double> rates, weights(count), directions(count);
    for (std::size_t k = 0; k < count; ++k) rates.push_back(0.03 / (1 + static_cast<double>(k)));
    const auto found = lamb_squares_of(dev, with.update, state, now);
    detail::lamb_update(dev, with.update, state.table, now, tensor_of(dev, rates), state.gradient,
                        state.m.mut(), state.v.mut(), state.masters.mut());
    state.expect([&](Scalar& s, const Kind& kind, std::size_t parameter, double gradient) {
      weights[parameter] += s.w * s.w;
      const double direction = adam_quotient(s, with, gradient) + (kind.decays ? 0.02 : 0) * s.w;
      directions[parameter] += direction * direction;
      s.w -= (kind.decays ? rates[parameter] : 0.05) * direction;
    });
    const double tolerance = std::is_same_v<T, double> ? 1e-13 : 2e-5;
    for (std::size_t k = 0; k < count; ++k) {
      CHECK(std::abs(found.first[k] - weights[k]) <= tolerance * weights[k]);
      CHECK(std::abs(found.second[k] - directions[k]) <= tolerance * directions[k]);
    }
  });
}

TEST_CASE("rates of LARS and LAMB: by norms, and the learning rate where one is zero") {
  Cpu dev;
  const auto state = make_step_state(dev, {.learning_rate = 0.5, .gradient_scale = 0.25});
  const auto weights = tensor_of<double>(dev, {4, 4, 0, 9}),
             others = tensor_of<double>(dev, {16, 0, 16, 0});
  Tensor<Cpu> rates(dev, DType::f64, {4});
  detail::lars_rates(dev, {.trust = 0.01, .weight_decay = 0.5}, state, weights, others,
                     rates.mut());
  // |w| = 2, |g| = 4 / 4, decay |w| = 1; without a gradient the decay alone; without a weight, lr.
  CHECK(distance(widened(rates), {0.5 * 0.01 * 2 / 2, 0.5 * 0.01 * 2, 0.5, 0.5 * 0.01 * 2}) <
        1e-16);
  detail::lamb_rates(dev, state, weights, others, rates.mut());
  CHECK(widened(rates) == std::vector<double>{0.25, 0.5, 0.5, 0.5});
}

TEST_CASE("the numbers of PyTorch 1.13, three steps in double") {
  // torch.optim over w = [0.5, -1.25, 2], gradients [1, -2, 0.5], [0.25, 4, -1], [-3, 0.125, 0].
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

TEST_CASE_TEMPLATE("every weight moves once, however it lies in tiles", T, float, bf16) {
  Cpu dev({.threads = 2});
  State<T> state(dev, kinds_around_a_tile());
  const Sgd with{{.momentum = 0.5, .weight_decay = 0.1}, {.learning_rate = 0.1}};
  sgd_update(dev, with.update, state.table, make_step_state(dev, with.now), {}, state.gradient,
             state.m.mut(), state.masters.mut());
  state.expect([&](Scalar& s, const Kind& kind, std::size_t, double gradient) {
    sgd(s, with, kind.decays ? 0.1 : 0, 0.1, gradient);
  });
  state.check_against_expected();
}

TEST_CASE_TEMPLATE("threads change no bit", T, double, float, bf16) {
  CHECK(same_on_threads([](Cpu& dev) {
    Weights<Cpu, T> w(dev, kinds_around_a_tile());
    const auto now = make_step_state(dev, {.learning_rate = 0.01, .updates = 1});
    detail::adamw_update(dev, {.weight_decay = 0.1}, w.table, now, w.gradient, w.m.mut(), w.v.mut(),
                         w.masters.mut());
    sgd_update(dev, {.momentum = 0.9}, w.table, now, {}, w.gradient, w.m.mut(), w.masters.mut());
    return values_of(w.written());
  }));
}

TEST_CASE("a step that does not go changes nothing; nor does a table of nothing") {
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

TEST_CASE("what does not fit is refused") {
  Cpu dev;
  Weights<Cpu, bf16> w(dev, {{4}, {40}});
  const auto now = make_step_state(dev, {.learning_rate = 0.1, .updates = 1});
  const auto rates = tensor_of<double>(dev, {1, 1});
  const auto small = random_tensor<float>(dev, {71}, 1);
  CHECK(message_of([&] { sgd_update(dev, {}, w.table, now, {}, small, {}, w.masters.mut()); }) ==
        "sgd_update: the gradient [71] of f32 does not fit 72 weights that are accumulated in f32");
  CHECK(message_of([&] {
          sgd_update(dev, {}, w.table, now, {}, w.gradient.view().slice(1, 96), {},
                     w.masters.mut());
        }) == "sgd_update: the gradient does not begin at a multiple of 16 bytes");
  CHECK(message_of([&] {
          sgd_update(dev, {.momentum = 0.9}, w.table, now, {}, w.gradient, {}, w.masters.mut());
        }) == "sgd_update: momentum 0.9 needs a buffer for it");
  CHECK(message_of([&] {
          sgd_update(dev, {}, w.table, now, rates.view().slice(0, 1), w.gradient, {},
                     w.masters.mut());
        }) == "sgd_update: rates of 2 parameters are f64, got f64 [1]");
  CHECK(message_of([&] {
          sgd_update(dev, {}, w.table, rates, {}, w.gradient, {}, w.masters.mut());
        }) == concat("the state of a step is u8 [", detail::step_state_bytes, "], got f64 [2]"));
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
  auto sums = tensor_of<double>(dev, {0, 0});
  CHECK(message_of([&] {
          detail::lamb_squares(dev, {}, w.table, now, w.gradient, w.m, w.v, w.masters, sums.mut(),
                               sums.mut().slice(0, 1));
        }) == "lamb_squares: the sums of 2 tiles are f64, got f64 [1]");
}

TEST_CASE_TEMPLATE("update_moving_averages: by a share of the mean", A, double, float) {
  Cpu dev;
  auto mean = Tensor<Cpu>::from_host(dev, {2}, std::vector<A>{1, 8});
  auto variance = Tensor<Cpu>::from_host(dev, {1}, std::vector<A>{4});
  const detail::SegmentTable<Cpu> table(
      dev, dtype_of<A>(),
      {{.range = {32, 34}, .value = mean.mut()}, {.range = {64, 65}, .value = variance.mut()}});
  std::vector<A> flat(65, A(100));  // and what is no statistic
  flat[32] = 12;
  flat[33] = 0;
  flat[64] = -16;
  const auto sums = Tensor<Cpu>::from_host(dev, {65}, flat);
  update_moving_averages(dev, 0.25, 4, table,
                         make_step_state(dev, {.decision = StepDecision::skip}), sums);
  CHECK(widened(mean) == std::vector<double>{1, 8});
  update_moving_averages(dev, 0.25, 4, table, make_step_state(dev, {}), sums);
  CHECK(widened(mean) == std::vector<double>{1.5, 6});
  CHECK(widened(variance) == std::vector<double>{2});
}
