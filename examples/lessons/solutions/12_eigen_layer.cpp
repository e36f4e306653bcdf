// Solutions of lesson 12. 1: tanh instead of sine. 2: what each rank adds to the tensor axis's sum of input gradients.
#include <dhp/eigen.hpp>
#include <dhp/nn/check_gradients.hpp>

#include "lesson.hpp"
#include "sine_layer.hpp"

using dhp::eigen::columns_of, dhp::eigen::rows_of;
using toy::Dev;  // the Cpu, since Eigen computes on the host

/// Y = tanh(W X). The derivative is 1 - Y^2, so the layer keeps Y.
class TanhLayer : public lesson::SineLayer {
 public:
  TanhLayer(dhp::ModelBuilder<Dev>& build, const std::string& name, std::int64_t in,
            std::int64_t out)
      : SineLayer(build, name, in, out) {
    dhp::ParameterList<Dev> list;
    parameters(list);
    weight_ = list.front();
  }
  dhp::Tensor<Dev> forward(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape) {
    dhp::Tensor<Dev> y(dev, x.dtype(), {x.rows(), weight_->value.shape()[0]});
    columns_of<double>(y.mut()) =
        rows_of<double>(weight_->value).lazyProduct(columns_of<double>(x)).array().tanh();
    tape.push(std::move(x));
    tape.push(y.share());
    return y;
  }
  dhp::Tensor<Dev> backward(Dev& dev, dhp::Tensor<Dev> dy, dhp::Tape<Dev>& tape) {
    const dhp::Tensor<Dev> y = tape.pop();
    dhp::Tensor<Dev> x = tape.pop(), da(dev, dy.dtype(), dy.shape()), dx(dev, x.dtype(), x.shape());
    columns_of<double>(da.mut()) =
        columns_of<double>(dy).array() * (1 - columns_of<double>(y).array().square());
    columns_of<double>(dx.mut()).noalias() =
        rows_of<double>(weight_->value).transpose().lazyProduct(columns_of<double>(da));
    tape.weight_gradient(dev, [weight = weight_, x = std::move(x), da = std::move(da)](Dev& later) {
      weight->accumulate(later, [&](dhp::View<Dev> dw, double beta) {
        if (beta == 0) rows_of<double>(dw).setZero();
        rows_of<double>(dw).noalias() +=
            columns_of<double>(da).lazyProduct(columns_of<double>(x).transpose());
      });
    });
    return dx;
  }

 private:
  dhp::Parameter<Dev> weight_;
};

dhp::Tensor<Dev> numbers(Dev& dev, const dhp::Shape& shape) {
  dhp::Tensor<Dev> result(dev, dhp::DType::f64, shape);
  cast(dev, toy::noise(dev, shape, 0).view(), result.mut());
  return result;
}

/// Returns the gradient of x [3, 2] of a layer with 4 outputs. dy is 1 on `rank` (-1: on all ranks) and 0 on others.
std::vector<double> input_gradient(dhp::Comm<Dev> world, int rank) {
  Dev dev;
  dhp::ModelBuilder<Dev> build(world);
  build.place({{"weight", dhp::Placement::columns}});
  lesson::SineLayer layer(build, "weight", 2, 4);
  dhp::ParameterList<Dev> parameters;
  layer.parameters(parameters);
  dhp::ParameterStore<Dev> store(dev, parameters, {.compute = dhp::DType::f64, .seed = 1});
  dhp::Tape<Dev> tape({});
  auto y = layer.forward(dev, numbers(dev, {3, 2}), tape);
  fill(dev, y.mut(), rank < 0 || rank == world.rank() ? 1 : 0);
  return layer.backward(dev, std::move(y), tape).to_host<double>(dev);
}

int main() {
  Dev dev;
  dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
  TanhLayer layer(build, "weight", 2, 4);
  dhp::MicroBatch<Dev> batch;
  batch.samples = 3;
  const auto gap = check_gradients(dev, layer, numbers(dev, {3, 2}), batch);
  std::printf("tanh: backward is the derivative of forward: %s\n", gap.worst < 1e-7 ? "yes" : "no");

  const auto of = [](int ranks, int rank) {
    return toy::on_each_rank(ranks, input_gradient, rank)[0];
  };
  const auto whole = of(1, -1), summed = of(2, -1);
  const std::vector<double> parts[] = {of(2, 0), of(2, 1)};
  bool correct = gap.worst < 1e-7;
  std::printf("dx      one rank    rank 0     rank 1     their sum  both ranks\n");
  for (std::size_t at = 0; at < 2; ++at)
    std::printf("dx[%zu]  % .6f  % .6f  % .6f  % .6f  % .6f\n", at, whole[at], parts[0][at],
                parts[1][at], parts[0][at] + parts[1][at], summed[at]);
  for (std::size_t at = 0; at < whole.size(); ++at)
    correct = correct && std::abs(parts[0][at] + parts[1][at] - whole[at]) < 1e-12 &&
              std::abs(summed[at] - whole[at]) < 1e-12;
  return toy::status(correct);
}
