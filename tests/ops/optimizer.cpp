// Optimizer updates against PyTorch's formulas written out for one scalar, over several steps; and against
// numbers that PyTorch 1.13 printed.
#include <dhp/cpu/optimizer.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

// One weight with its state, in double.
struct Scalar {
  double w = 0, m = 0, v = 0;
};

// What a case needs beside the state: options of the update and what is read on the device.
struct Sgd {
  SgdUpdate update{};
  StepState now{};
};
struct Adam {
  AdamUpdate update{};
  StepState now{};
};

// w after one step along g at the learning rate of the case.
void sgd(Scalar& s, const Sgd& with, double gradient) {
  const auto& u = with.update;
  double g = with.now.gradient_scale * gradient;
  g += u.weight_decay * s.w;
  if (u.momentum != 0) {
    s.m = u.momentum * s.m + g;
    g = u.nesterov ? g + u.momentum * s.m : s.m;
  }
  s.w -= with.now.learning_rate * g;
}
double adam_quotient(Scalar& s, const Adam& with, double gradient) {
  const auto& u = with.update;
  const double g = with.now.gradient_scale * gradient;
  const double step = with.now.updates;
  s.m = u.beta1 * s.m + (1 - u.beta1) * g;
  s.v = u.beta2 * s.v + (1 - u.beta2) * g * g;
  const double mean = s.m / (1 - std::pow(u.beta1, step));
  return mean / (std::sqrt(s.v / (1 - std::pow(u.beta2, step))) + u.epsilon);
}
void adamw(Scalar& s, const Adam& with, double gradient) {
  s.w *= 1 - with.now.learning_rate * with.update.weight_decay;
  s.w -= with.now.learning_rate * adam_quotient(s, with, gradient);
}

// Where the weights of the layers lie.
enum class Values { are_the_master, of_the_same_type, bf16, f16 };
const std::vector<Values> all_values{Values::are_the_master, Values::of_the_same_type, Values::bf16,
                                     Values::f16};

// All that an update of `count` weights touches; A is the accumulation type.
template <class A>
struct State {
  State(Cpu& dev, std::int64_t count, Values values)
      : m(Tensor<Cpu>::zeros(dev, dtype_of<A>(), {count})),
        v(Tensor<Cpu>::zeros(dev, dtype_of<A>(), {count})),
        master(random_tensor<A>(dev, {count}, 1)),
        direction(dev, dtype_of<A>(), {count}) {
    const auto weights = widened(master);
    for (const double w : weights) expected.push_back({.w = w});
    if (values == Values::of_the_same_type) value = Tensor<Cpu>(dev, dtype_of<A>(), {count});
    if (values == Values::bf16) value = Tensor<Cpu>(dev, DType::bf16, {count});
    if (values == Values::f16) value = Tensor<Cpu>(dev, DType::f16, {count});
  }
  View<Cpu> target() { return value ? value.mut() : master.mut(); }

  void check_against_expected() {
    const double tolerance = std::is_same_v<A, double> ? 1e-13 : 2e-5;
    std::vector<double> w, first, second;
    for (const auto& scalar : expected) {
      w.push_back(scalar.w);
      first.push_back(scalar.m);
      second.push_back(scalar.v);
    }
    CHECK(distance(widened(master), w) < tolerance);
    CHECK(distance(widened(m), first) < tolerance);
    CHECK(distance(widened(v), second) < tolerance);
    if (!value) return;
    // The values are the masters, rounded.
    auto rounded = widened(master);
    visit_floating(value.dtype(), [&]<class T>(Tag<T>) {
      for (auto& each : rounded) each = static_cast<double>(static_cast<T>(static_cast<A>(each)));
    });
    CHECK(widened(value) == rounded);
  }

  Tensor<Cpu> m, v, master, direction, value;
  std::vector<Scalar> expected;
};

constexpr std::int64_t count = 1037;

// body(state, gradient, gradients in double, step) for five steps, for all kinds of values.
template <class A, class Body>
void five_steps(Body body) {
  for (const auto values : all_values) {
    if (std::is_same_v<A, double> && (values == Values::bf16 || values == Values::f16)) continue;
    Cpu dev({.threads = 2});
    State<A> state(dev, count, values);
    for (std::uint32_t step = 1; step <= 5; ++step) {
      const auto gradient = random_tensor<A>(dev, {count}, 10 + step);
      body(dev, state, gradient, widened(gradient), step);
      state.check_against_expected();
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("SGD: plain, momentum, Nesterov, decay, scaled gradient", A, double, float) {
  const std::vector<Sgd> cases{
      {{}, {.learning_rate = 0.1}},
      {{.weight_decay = 0.01}, {.learning_rate = 0.1, .gradient_scale = 0.25}},
      {{.momentum = 0.9}, {.learning_rate = 0.05}},
      {{.momentum = 0.9, .weight_decay = 0.1}, {.learning_rate = 0.05, .gradient_scale = 0.5}},
      {{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
       {.learning_rate = 0.05, .gradient_scale = 2}}};
  for (const auto& with : cases)
    five_steps<A>([&](Cpu& dev, State<A>& state, const Tensor<Cpu>& gradient,
                      const std::vector<double>& gradients, std::uint32_t) {
      const View<Cpu> momentum = with.update.momentum == 0 ? View<Cpu>() : state.m.mut();
      const auto now = make_step_state(dev, with.now);
      sgd_update(dev, with.update, now, learning_rate_of(now.view()), gradient, momentum,
                 state.master.mut(), state.target());
      for (std::size_t i = 0; i < gradients.size(); ++i) sgd(state.expected[i], with, gradients[i]);
    });
}

TEST_CASE_TEMPLATE("SGD: a rate inside the momentum, as LARS has it", A, double, float) {
  const Sgd with{{.momentum = 0.9, .weight_decay = 0.1, .rate_in_momentum = true},
                 {.learning_rate = 7, .gradient_scale = 0.5}};
  five_steps<A>([&](Cpu& dev, State<A>& state, const Tensor<Cpu>& gradient,
                    const std::vector<double>& gradients, std::uint32_t step) {
    const double rate = 0.1 / step;
    const auto now = make_step_state(dev, with.now);
    sgd_update(dev, with.update, now, Tensor<Cpu>::from_host(dev, {1}, std::vector<double>{rate}),
               gradient, state.m.mut(), state.master.mut(), state.target());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      auto& s = state.expected[i];
      s.m = 0.9 * s.m + rate * (0.5 * gradients[i] + 0.1 * s.w);
      s.w -= s.m;
    }
  });
}

TEST_CASE_TEMPLATE("AdamW: bias correction, decay apart from the gradient", A, double, float) {
  const std::vector<Adam> cases{
      {{}, {.learning_rate = 0.01}},
      {{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.1},
       {.learning_rate = 0.01, .gradient_scale = 0.125}}};
  for (const auto& with : cases)
    five_steps<A>([&](Cpu& dev, State<A>& state, const Tensor<Cpu>& gradient,
                      const std::vector<double>& gradients, std::uint32_t step) {
      auto current = with;
      current.now.updates = step;
      adamw_update(dev, with.update, make_step_state(dev, current.now), gradient, state.m.mut(),
                   state.v.mut(), state.master.mut(), state.target());
      for (std::size_t i = 0; i < gradients.size(); ++i)
        adamw(state.expected[i], current, gradients[i]);
    });
}

TEST_CASE_TEMPLATE("LAMB: direction, also over the gradient, then a step along it", A, double,
                   float) {
  for (const bool over_gradient : {false, true})
    five_steps<A>([&](Cpu& dev, State<A>& state, const Tensor<Cpu>& gradient,
                      const std::vector<double>& gradients, std::uint32_t step) {
      const Adam with{{.weight_decay = 0.02},
                      {.updates = static_cast<double>(step), .gradient_scale = 0.5}};
      const auto now = make_step_state(dev, with.now);
      if (over_gradient) {
        cast(dev, gradient, state.direction.mut());
        lamb_direction(dev, with.update, now, state.direction.view(), state.m.mut(), state.v.mut(),
                       state.master, state.direction.mut());
      } else {
        lamb_direction(dev, with.update, now, gradient, state.m.mut(), state.v.mut(), state.master,
                       state.direction.mut());
      }
      const auto rate = Tensor<Cpu>::from_host(dev, {1}, std::vector<double>{0.03});
      apply_direction(dev, now, rate, state.direction, state.master.mut(), state.target());
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        auto& s = state.expected[i];
        const double quotient = adam_quotient(s, with, gradients[i]);
        s.w -= 0.03 * (quotient + 0.02 * s.w);
      }
    });
}

TEST_CASE("rates of LARS and LAMB: by norms, and the learning rate where one is zero") {
  Cpu dev;
  const auto of = [&](std::vector<double> values) {
    return Tensor<Cpu>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values);
  };
  const auto state = make_step_state(dev, {.learning_rate = 0.5, .gradient_scale = 0.25});
  const auto weights = of({4, 4, 0, 9}), others = of({16, 0, 16, 0});
  Tensor<Cpu> rates(dev, DType::f64, {4});
  lars_rates(dev, {.trust = 0.01, .weight_decay = 0.5}, state, weights, others, rates.mut());
  // |w| = 2, |g| = 4 / 4, decay |w| = 1; without a gradient the decay alone; without a weight, lr.
  CHECK(distance(widened(rates), {0.5 * 0.01 * 2 / 2, 0.5 * 0.01 * 2, 0.5, 0.5 * 0.01 * 2}) <
        1e-16);
  lamb_rates(dev, state, weights, others, rates.mut());
  CHECK(widened(rates) == std::vector<double>{0.25, 0.5, 0.5, 0.5});
}

TEST_CASE("the numbers of PyTorch 1.13, three steps in double") {
  // torch.optim over w = [0.5, -1.25, 2], gradients [1, -2, 0.5], [0.25, 4, -1], [-3, 0.125, 0].
  Cpu dev;
  const std::vector<std::vector<double>> gradients{{1, -2, 0.5}, {0.25, 4, -1}, {-3, 0.125, 0}};
  const auto train = [&](auto step) {
    auto w = Tensor<Cpu>::from_host(dev, {3}, std::vector<double>{0.5, -1.25, 2});
    auto m = Tensor<Cpu>::zeros(dev, DType::f64, {3});
    auto v = Tensor<Cpu>::zeros(dev, DType::f64, {3});
    for (std::size_t k = 0; k < 3; ++k)
      step(Tensor<Cpu>::from_host(dev, {3}, gradients[k]), m, v, w,
           static_cast<std::int64_t>(k + 1));
    return widened(w);
  };
  for (const bool nesterov : {false, true}) {
    const auto got = train(
        [&](const Tensor<Cpu>& g, Tensor<Cpu>& m, Tensor<Cpu>&, Tensor<Cpu>& w, std::int64_t) {
          const auto now = make_step_state(dev, {.learning_rate = 0.1});
          sgd_update(dev, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = nesterov}, now,
                     learning_rate_of(now.view()), g, m.mut(), w.mut(), w.mut());
        });
    const std::vector<double> expected =
        nesterov ? std::vector<double>{0.6554518146705001, -1.66052035462625, 2.083133359332}
                 : std::vector<double>{0.47910229950000005, -1.47385329875, 2.043379548};
    CHECK(distance(got, expected) < 1e-14);
  }
  const auto got = train(
      [&](const Tensor<Cpu>& g, Tensor<Cpu>& m, Tensor<Cpu>& v, Tensor<Cpu>& w, std::int64_t step) {
        const StepState now{.learning_rate = 0.1, .updates = static_cast<double>(step)};
        adamw_update(dev, {.beta2 = 0.99, .weight_decay = 0.05}, make_step_state(dev, now), g,
                     m.mut(), v.mut(), w.mut(), w.mut());
      });
  CHECK(distance(got, std::vector<double>{0.3501587900163379, -1.1988213035693065,
                                          1.9358511088981152}) < 1e-14);
}

TEST_CASE_TEMPLATE("threads change no bit", A, double, float) {
  std::vector<double> first;
  const std::int64_t many = 2 * cpu::elementwise_tile + 9;
  for (const int threads : {1, 2, 3}) {
    Cpu dev({.threads = threads});
    State<A> state(dev, many, Values::of_the_same_type);
    const auto gradient = random_tensor<A>(dev, {many}, 7);
    const auto now = make_step_state(dev, {.learning_rate = 0.01, .updates = 1});
    adamw_update(dev, {}, now, gradient, state.m.mut(), state.v.mut(), state.master.mut(),
                 state.target());
    sgd_update(dev, {.momentum = 0.9}, now, learning_rate_of(now.view()), gradient, state.m.mut(),
               state.master.mut(), state.target());
    if (threads == 1) first = widened(state.value);
    CHECK(widened(state.value) == first);
  }
}

TEST_CASE("an empty range is left alone; what does not fit is refused") {
  Cpu dev;
  State<float> none(dev, 0, Values::bf16);
  const auto no_gradient = random_tensor<float>(dev, {0}, 1);
  const auto now = make_step_state(dev, {.learning_rate = 0.1, .updates = 1});
  const auto rate = learning_rate_of(now.view());
  adamw_update(dev, {}, now, no_gradient, none.m.mut(), none.v.mut(), none.master.mut(),
               none.target());
  State<float> state(dev, 4, Values::are_the_master);
  const auto gradient = random_tensor<float>(dev, {3}, 1);
  const auto fitting = random_tensor<float>(dev, {4}, 1);
  CHECK(message_of([&] {
          sgd_update(dev, {}, now, rate, gradient, {}, state.master.mut(), state.target());
        }) == "sgd_update: the gradient [3] of f32 does not fit the weights [4] of f32");
  CHECK(message_of([&] {
          sgd_update(dev, {.momentum = 0.9}, now, rate, fitting, {}, state.master.mut(),
                     state.target());
        }) == "sgd_update: momentum 0.9 needs a buffer for it");
  CHECK(message_of([&] {
          sgd_update(dev, {}, now, fitting, fitting, {}, state.master.mut(), state.target());
        }) == "sgd_update: the rate is f64 [1], got f32 [4]");
  CHECK(message_of([&] {
          sgd_update(dev, {}, rate, rate, fitting, {}, state.master.mut(), state.target());
        }) == "the state of a step is f64 [9], got f64 [1]");
  auto wide = random_tensor<double>(dev, {4}, 1);
  CHECK(message_of([&] {
          adamw_update(dev, {}, now, fitting, wide.mut(), state.v.mut(), state.master.mut(),
                       state.target());
        }) == "adamw_update: m [4] of f64 does not fit the weights [4] of f32");
  CHECK(message_of([&] {
          apply_direction(dev, now, rate, gradient, state.master.mut(), state.target());
        }) == "apply_direction: the direction [3] of f32 does not fit the weights [4] of f32");
}
