// Every op refuses each of its operands if that has another type or size.
#include <dhp/cpu/activation.hpp>
#include <dhp/cpu/batch_norm.hpp>
#include <dhp/cpu/compression.hpp>
#include <dhp/cpu/conv2d.hpp>
#include <dhp/cpu/cross_entropy.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/elementwise.hpp>
#include <dhp/cpu/exact_sum.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/layer_norm.hpp>
#include <dhp/cpu/pool.hpp>
#include <dhp/cpu/reduce.hpp>
#include <dhp/cpu/rotary.hpp>
#include <dhp/cpu/rows.hpp>
#include <dhp/ops/embedding.hpp>
#include <dhp/ops/linear.hpp>
#include <tests/support/tensors.hpp>

namespace {

/// An operand of a call. A test replaces each in turn.
struct Operand {
  DType type;
  Shape shape;
  /// The freedom of an operand: any number of rows or columns, any size, any floating-point type, or all of these.
  enum Free { nothing, rows, columns, size, floats, all } free = nothing;
};
using Operands = std::vector<Tensor<Cpu>>;
struct Call {
  std::vector<Operand> operands;
  std::function<void(Cpu&, Operands&)> run;
};
/// Returns the call run(dev, views of the operands).
template <class Run, class... All>
Call call(Run run, const All&... operands) {
  return {{operands...}, [run](Cpu& dev, Operands& of) {
            [&]<std::size_t... at>(std::index_sequence<at...>) { run(dev, of[at].mut()...); }
            (std::index_sequence_for<All...>());
          }};
}

constexpr auto f32 = DType::f32, f64 = DType::f64, i32 = DType::i32, i64 = DType::i64;
using Kept = detail::BatchNormVectors<Cpu>;
const DropoutOptions whole_rows{.total_columns = 4};
const CrossEntropyOptions classes{.classes = 4};
const Activation gelu = Activation::gelu;
const Conv2dGeometry three{3, 1, 1};
const PoolGeometry pairs{2, 1, 0};
const Operand x{f32, {3, 4}}, tall{f32, {3, 4}, Operand::rows}, wide{f32, {3, 4}, Operand::columns},
    any{f32, {4}, Operand::all}, number{f32, {3, 4}, Operand::floats}, column{f32, {4}},
    row{f32, {3}}, one{f64, {1}}, flag{i32, {1}}, labels{i32, {3}}, limbs{i64, {4}};

std::vector<Call> elementwise_and_norms() {
  using namespace detail;
  return {
      call([](auto& dev, auto in, auto y) { activation_forward(dev, gelu, in, y); }, x, x),
      call([](auto& dev, auto in, auto dy, auto dx) { activation_backward(dev, gelu, in, dy, dx); },
           x, x, x),
      call([](auto& dev, auto gate, auto up, auto y) { swiglu_forward(dev, gate, up, y); }, x, x,
           x),
      call([](auto& dev, auto... all) { swiglu_backward(dev, all...); }, x, x, x, x, x),
      call([](auto& dev, auto in, auto y) { dropout(dev, in, {}, whole_rows, y); }, x, x),
      call([](auto& dev, auto a, auto b, auto y) { add(dev, a, b, y); }, number, number, number),
      call([](auto& dev, auto in, auto y) { axpy(dev, 1, in, y); }, number, number),
      call([](auto& dev, auto in, auto y) { cast(dev, in, y); }, number, number),
      call(
          [](auto& dev, auto a, auto y, auto b, auto z) {
            add_both<Cpu>(dev, {1, a, y}, {1, b, z}, 1);
          },
          column, column, row, row),
      call([](auto& dev, auto factor, auto y) { scale(dev, 1, y, factor); }, one, any),
      call([](auto& dev, auto in, auto y) { rsqrt(dev, in, 1, y); }, x, x),
      call([](auto& dev, auto... all) { batch_norm_squared_deviations(dev, all...); }, tall, column,
           column),
      call([](auto& dev, auto sums, auto... all) { batch_norm_from_sums(dev, sums, 3, 1, all...); },
           Operand{f32, {2, 4}}, column, column, column),
      call(
          [](auto& dev, auto a, auto b, auto c, auto d, auto in, auto residual, auto y) {
            batch_norm_apply(dev, in, Kept{a, b, c, d}, residual, true, y);
          },
          column, column, column, column, x, x, x),
      call(
          [](auto& dev, auto a, auto b, auto c, auto d, auto dy, auto in, auto... sums) {
            batch_norm_backward_sums(dev, dy, in, Kept{a, b, c, d}, true, sums...);
          },
          column, column, column, column, x, x, column, column),
      call(
          [](auto& dev, auto a, auto b, auto c, auto d, auto dy, auto in, auto... out) {
            batch_norm_backward_sums(dev, dy, in, Kept{a, b, c, d}, true, out...);
          },
          column, column, column, column, x, x, column, column, x, x),
      call(
          [](auto& dev, auto a, auto b, auto c, auto d, auto dy, auto in, auto sum, auto product,
             auto dx) {
            batch_norm_backward_apply(dev, dy, in, Kept{a, b, c, d}, true, sum, product, 3, dx);
          },
          column, column, column, column, x, x, column, column, x),
      call([](auto& dev, auto in, auto gamma, auto beta,
              auto... out) { layer_norm_forward(dev, in, gamma, beta, 1, out...); },
           x, column, column, x, row, row),
      call([](auto& dev, auto... all) { layer_norm_backward(dev, all..., 0); }, x, x, column, row,
           row, x, column, column),
      call([](auto& dev, auto in, auto gamma,
              auto... out) { rms_norm_forward(dev, in, gamma, 1, out...); },
           x, column, x, row),
      call([](auto& dev, auto... all) { rms_norm_backward(dev, all..., 0); }, x, x, column, row, x,
           column),
      call(
          [](auto& dev, auto in, auto residual, auto gamma, auto beta, auto... out) {
            residual_layer_norm_forward(dev, in, residual, {}, whole_rows, gamma, beta, 1, out...);
          },
          x, x, column, column, x, x, row, row),
      call(
          [](auto& dev, auto dy, auto sum, auto gamma, auto mean, auto inv_std, auto... out) {
            residual_layer_norm_backward(dev, dy, sum, gamma, mean, inv_std, {}, whole_rows, out...,
                                         0);
          },
          x, x, column, row, row, x, x, column, column)};
}

std::vector<Call> products_and_windows() {
  using namespace detail;
  const Operand w{f32, {5, 4}}, y{f32, {3, 5}}, bias{f32, {5}};
  const Operand image{f32, {1, 4, 4, 2}}, kernels{f32, {3, 3, 3, 2}}, made{f32, {1, 4, 4, 3}},
      pooled{f32, {1, 3, 3, 2}}, index{i32, {1, 3, 3, 2}},
      pictures{f32, {1, 4, 4, 2}, Operand::size}, mean{f32, {1, 2}};
  return {
      call([](auto& dev, auto a, auto b, auto c,
              auto added) { gemm(dev, a, b, c, {.transpose_b = true}, added); },
           x, w, y, bias),
      call([](auto& dev, auto... all) { linear_gelu_forward(dev, all...); }, x, w, bias, y, y),
      call([](auto& dev, auto... all) { gelu_linear_backward(dev, all..., 0); }, y, w, x, x,
           column),
      call([](auto& dev, auto... all) { linear_gradients(dev, all..., 0); }, y, x, w, bias),
      call([](auto& dev, auto a, auto b, auto c) { conv2d_forward(dev, a, b, three, c); }, image,
           kernels, made),
      call([](auto& dev, auto a, auto b, auto c) { conv2d_backward_data(dev, a, b, three, c); },
           made, kernels, image),
      call(
          [](auto& dev, auto a, auto b, auto c) { conv2d_backward_filter(dev, a, b, three, c, 0); },
          image, made, kernels),
      call([](auto& dev, auto in, auto... out) { max_pool_forward(dev, in, pairs, out...); }, image,
           pooled, index),
      call([](auto& dev, auto dy, auto at, auto dx) { max_pool_backward(dev, dy, at, pairs, dx); },
           pooled, index, image),
      call([](auto& dev, auto... all) { global_average_pool_forward(dev, all...); }, pictures,
           mean),
      call([](auto& dev, auto... all) { global_average_pool_backward(dev, all...); }, mean,
           pictures)};
}

std::vector<Call> rows_and_sums() {
  using namespace detail;
  const Operand sums{f32, {3, 3}}, table{f32, {5, 4}, Operand::rows},
      sum_of_4{f32, {4}, Operand::floats};
  return {
      call([](auto& dev, auto in, auto out) { column_sums(dev, in, out, 0); }, tall, column),
      call([](auto& dev, auto in, auto out) { sum(dev, in, out); }, any, one),
      call([](auto& dev, auto in, auto out) { sum_of_squares(dev, in, out); }, any, one),
      call([](auto& dev, auto in, auto out) { sum_of_magnitudes(dev, in, out); }, any, one),
      call([](auto& dev, auto in, auto out) { count_nonfinite(dev, in, out); }, any, one),
      call([](auto& dev, auto of, auto ids, auto y) { embedding_forward(dev, of, ids, 0, y); },
           table, labels, x),
      call(
          [](auto& dev, auto dy, auto ids, auto to) { embedding_backward(dev, dy, ids, 0, to, 0); },
          x, labels, table),
      call([](auto& dev, auto... all) { gather_rows(dev, all...); }, table, labels, x),
      call([](auto& dev, auto... all) { scatter_add_rows(dev, all...); }, x, labels, table),
      call([](auto& dev, auto from, auto to) { copy_columns(dev, from, 0, to, 0, 4); }, wide, wide),
      call([](auto& dev, auto... all) { exact_accumulate(dev, all...); }, sum_of_4, limbs, limbs,
           flag),
      call([](auto& dev, auto... all) { exact_finalize(dev, all...); }, limbs, limbs, flag,
           sum_of_4),
      call([](auto& dev, auto in, auto max) { cross_entropy_max(dev, in, classes, max); }, x, row),
      call([](auto& dev, auto in, auto of, auto max,
              auto out) { cross_entropy_sums(dev, in, of, max, classes, out); },
           x, labels, row, sums),
      call([](auto& dev, auto max, auto in, auto of,
              auto out) { cross_entropy_loss(dev, max, in, of, classes, out); },
           row, sums, labels, row),
      call([](auto& dev, auto in, auto of_sums, auto of,
              auto out) { cross_entropy_rank(dev, in, of_sums, of, classes, out); },
           x, sums, labels, labels),
      call([](auto& dev, auto... all) { cross_entropy_totals(dev, all...); },
           Operand{f32, {3}, Operand::floats}, labels, labels, Operand{f64, {4}}),
      call([](auto& dev, auto in, auto max, auto of_sums, auto of, auto scale,
              auto to) { cross_entropy_backward(dev, in, max, of_sums, of, classes, scale, to); },
           x, row, sums, labels, one, x),
      call([](auto& dev, auto in, auto at) { rotary(dev, in, at, {.heads = 2}); }, number, labels)};
}

/// Returns the operands, all zeros, with one of them replaced.
Operands operands(Cpu& dev, const Call& of_call, std::size_t place, const Operand& other) {
  Operands made;
  for (std::size_t at = 0; at < of_call.operands.size(); ++at) {
    const auto& of = at == place ? other : of_call.operands[at];
    made.push_back(Tensor<Cpu>::zeros(dev, of.type, of.shape));
  }
  return made;
}

}  // namespace

TEST_CASE("every op refuses each operand of another type or size") {
  Cpu dev;
  std::size_t count = 0;
  for (const auto& calls : {elementwise_and_norms(), products_and_windows(), rows_and_sums()})
    for (const auto& each : calls) {
      ++count;
      for (std::size_t at = 0; at < each.operands.size(); ++at) {
        const auto& [type, shape, free] = each.operands[at];
        const auto refuses = [&](const Operand& other) {
          const auto said = message_of([&] {
            auto of = operands(dev, each, at, other);
            each.run(dev, of);
          });
          INFO("call ", count, ", operand ", at, " as ", to_text(other.shape), " of ", other.type,
               ": ", said);
          CHECK((said == "no error") == (other.type == type && other.shape == shape));
        };
        refuses({type, shape});
        refuses({DType::u8, shape});
        if (free != Operand::floats && free != Operand::all)
          refuses({type == f64 ? f32 : f64, shape});
        for (int dim = 0; dim < shape.rank(); ++dim)
          if (free != Operand::size && free != Operand::all &&
              !(free == Operand::rows && dim == 0) && !(free == Operand::columns && dim == 1))
            refuses({type, shape.with(dim, shape[dim] + 1)});
      }
    }
}

TEST_CASE("the checks that ops share say what does not fit, and what would") {
  Cpu dev;
  const auto in = Tensor<Cpu>::zeros(dev, DType::bf16, {3, 4}),
             y = Tensor<Cpu>::zeros(dev, f32, {3, 4}), three = Tensor<Cpu>::zeros(dev, f32, {3});
  CHECK(message_of([&] { detail::check_like("op: y", y, in); }) ==
        "op: y [3, 4] of f32 does not fit [3, 4] of bf16; make it like that");
  CHECK(message_of([&] { detail::check_columns("op: sum", three, in); }) ==
        "op: sum [3] of f32 does not fit the columns of [3, 4] of bf16; make it [4] of f32");
  CHECK(message_of([&] { detail::check_rows("op: mean", y, in); }) ==
        "op: mean [3, 4] of f32 does not fit the rows of [3, 4] of bf16; make it [3] of f32");
  CHECK(message_of([&] { detail::check_one("op: sum", three, f64); }) ==
        "op: sum [3] of f32 does not fit; make it [1] of f64");
}
