// PowerSgd: sends a matrix M as the product of two thin ones, P Q' (Vogels et al. 2019, "PowerSGD"). One power
// iteration starts from the Q of the previous step: P = M Q is summed over replicas and orthonormalized, then Q = M' P
// is summed. The error is M minus the mean over replicas, as in the authors' code and in PyTorch.
#pragma once

#include <dhp/extra/compressed_reducer.hpp>
#include <dhp/ops/gemm.hpp>

#include <algorithm>

namespace dhp {

struct PowerSgd {
  int rank = 4;  ///< columns of P and Q

  [[nodiscard]] std::int64_t rank_of(const Shape& matrix) const {
    return std::min({std::int64_t{rank}, matrix[0], matrix[1]});
  }
  /// Returns true if P and Q together are smaller than the matrix.
  [[nodiscard]] bool compresses(const Shape& matrix) const {
    return matrix.rank() == 2 && (matrix[0] + matrix[1]) * rank_of(matrix) < matrix.count();
  }
};

namespace detail {
template <class Dev>
class PowerSgdCompressor {
 public:
  /// Draws the first Q of each parameter from a normal distribution; it is the same on all replicas.
  PowerSgdCompressor(Dev& dev, const CompressedGradients<Dev>& gradients, int, std::uint64_t seed,
                     const PowerSgd& options) {
    check(options.rank >= 1, "PowerSGD needs a rank of 1 or more, not ", options.rank);
    if (gradients.empty()) return;
    const auto type = gradients.front().sum.dtype();
    std::int64_t p = 0, q = 0;
    for (const auto& gradient : gradients) {
      const auto rank = options.rank_of(gradient.sum.shape());
      p += gradient.sum.shape()[0] * rank;
      q += gradient.sum.shape()[1] * rank;
    }
    p_ = Tensor<Dev>::persistent(dev, type, {p});
    q_ = Tensor<Dev>::persistent(dev, type, {q});
    made_q_ = Tensor<Dev>::persistent(dev, type, {q});
    std::vector<double> first_q;
    p = q = 0;
    for (const auto& gradient : gradients) {
      const auto rank = options.rank_of(gradient.sum.shape());
      const Shape p_shape{gradient.sum.shape()[0], rank}, q_shape{gradient.sum.shape()[1], rank};
      const auto last_p = p + p_shape.count(), last_q = q + q_shape.count();
      const RandomStream random{.seed = mix(seed), .use = gradient.use};
      for (std::int64_t at = 0; at < q_shape.count(); ++at)
        first_q.push_back(random.normal(static_cast<std::uint64_t>(at)));
      factors_.push_back({p_.mut().slice(p, last_p).as(p_shape),
                          q_.view().slice(q, last_q).as(q_shape),
                          made_q_.mut().slice(q, last_q).as(q_shape), random});
      p = last_p;
      q = last_q;
    }
    cast(dev, Tensor<Dev>::from_host(dev, {q}, first_q), made_q_.mut());
    copy(dev, made_q_, q_.mut());  // for a first step that counts the one before it as skipped
  }

  void begin(Dev& dev, ConstView<Dev> state) { keep_made<Dev>(dev, state, made_q_, q_.mut()); }

  /// Runs two all-reduces: rank * rows values per matrix, then rank * columns.
  void sum(Dev& dev, Comm<Dev>& group, const CompressedGradients<Dev>& gradients) {
    for (std::size_t at = 0; at < gradients.size(); ++at)
      gemm(dev, gradients[at].unsent, factors_[at].q, factors_[at].p);
    group.all_reduce(dev, p_.mut()).wait();
    for (std::size_t at = 0; at < gradients.size(); ++at) {
      const auto& [p, q, made_q, random] = factors_[at];
      orthonormalize(dev, p, random);
      gemm(dev, gradients[at].unsent, p, made_q, {.transpose_a = true});
    }
    group.all_reduce(dev, made_q_.mut()).wait();
    for (std::size_t at = 0; at < gradients.size(); ++at) {
      const auto& gradient = gradients[at];
      gemm(dev, factors_[at].p, factors_[at].made_q, gradient.sum, {.transpose_b = true});
      axpy(dev, -1.0 / group.size(), gradient.sum, gradient.unsent);
    }
  }

 private:
  struct Factors {
    View<Dev> p;       // [rows, rank]
    ConstView<Dev> q;  // [columns, rank]: start of the iteration
    View<Dev> made_q;  // [columns, rank]: result of this step
    RandomStream random;
  };

  Tensor<Dev> p_, q_, made_q_;
  std::vector<Factors> factors_;
};
}  // namespace detail

template <class Dev>
[[nodiscard]] CompressedReducer<Dev, detail::PowerSgdCompressor<Dev>> make_reducer(
    Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, const PowerSgd& options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
