// Products, convolutions and attention as their definitions say, in double: what libraries are compared with. The
// kernels of cpu/ would do as well, but are not for nvcc.
#pragma once

#include <dhp/ops/attention.hpp>
#include <dhp/ops/conv2d.hpp>
#include <dhp/ops/gemm.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace tests {

using Numbers = std::vector<double>;
inline std::size_t index(std::int64_t at) { return static_cast<std::size_t>(at); }

/// alpha op(a) op(b) + beta c + bias, row-major; bias [n] or empty.
inline Numbers reference_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Numbers& a,
                              const Numbers& b, Numbers c, const dhp::GemmOptions& options,
                              const Numbers& bias = {}) {
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a[index(options.transpose_a ? l * m + i : i * k + l)] *
               b[index(options.transpose_b ? j * k + l : l * n + j)];
      double& to = c[index(i * n + j)];
      to = options.alpha * sum + (options.beta == 0 ? 0 : options.beta * to) +
           (bias.empty() ? 0 : bias[index(j)]);
    }
  return c;
}

/// Visits every product x[.] w[.] that is part of y[.], by positions.
template <class Body>
void for_conv2d_terms(const dhp::Shape& x, const dhp::Shape& y, dhp::Conv2dGeometry geometry,
                      Body body) {
  const std::int64_t kernel = geometry.kernel;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t oh = 0; oh < y[1]; ++oh)
      for (std::int64_t ow = 0; ow < y[2]; ++ow)
        for (std::int64_t kh = 0; kh < kernel; ++kh)
          for (std::int64_t kw = 0; kw < kernel; ++kw) {
            const auto h = oh * geometry.stride + kh - geometry.padding;
            const auto w = ow * geometry.stride + kw - geometry.padding;
            if (h < 0 || h >= x[1] || w < 0 || w >= x[2]) continue;
            for (std::int64_t o = 0; o < y[3]; ++o)
              for (std::int64_t c = 0; c < x[3]; ++c)
                body(index(((n * x[1] + h) * x[2] + w) * x[3] + c),
                     index(((o * kernel + kh) * kernel + kw) * x[3] + c),
                     index(((n * y[1] + oh) * y[2] + ow) * y[3] + o));
          }
}

/// One head of one sample: rows first..first + length of [rows, columns], columns column..column + size.
struct ReferenceHead {
  std::int64_t first, length, column, size, columns;
  [[nodiscard]] std::size_t at(std::int64_t row, std::int64_t c) const {
    return index((first + row) * columns + column + c);
  }
  [[nodiscard]] double dot(const Numbers& a, std::int64_t i, const Numbers& b,
                           std::int64_t j) const {
    double sum = 0;
    for (std::int64_t c = 0; c < size; ++c) sum += a[at(i, c)] * b[at(j, c)];
    return sum;
  }
};
struct ReferenceAttention {
  Numbers y, logsumexp, dq, dk, dv;
};
/// What becomes of the probability of a head, row of the batch, and key of the sample: 0 where it is dropped.
using ReferenceMask = std::function<double(std::int64_t head, std::int64_t row, std::int64_t key)>;

/// q, k, v, dy [rows, heads * size]; padding and what belongs to it is 0. mask: none drops nothing.
inline ReferenceAttention reference_attention(const Numbers& q, const Numbers& k, const Numbers& v,
                                              const Numbers& dy,
                                              const std::vector<std::int32_t>& offsets,
                                              const std::vector<std::int32_t>& lengths,
                                              std::int64_t heads, std::int64_t size,
                                              const ReferenceMask& mask = {}) {
  const std::int64_t rows = offsets.back();
  ReferenceAttention out;
  for (auto* one : {&out.y, &out.dq, &out.dk, &out.dv}) one->assign(q.size(), 0.0);
  out.logsumexp.assign(index(heads * rows), 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  for (std::size_t n = 0; n < lengths.size(); ++n)
    for (std::int64_t head = 0; head < heads; ++head) {
      const ReferenceHead at{offsets[n], lengths[n], head * size, size, heads * size};
      for (std::int64_t i = 0; i < at.length; ++i) {
        Numbers p, m;
        for (std::int64_t j = 0; j < at.length; ++j) p.push_back(scale * at.dot(q, i, k, j));
        const double most = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& value : p) sum += value = std::exp(value - most);
        out.logsumexp[index(head * rows + at.first + i)] = most + std::log(sum);
        double inner = 0;
        for (std::int64_t j = 0; j < at.length; ++j) {
          p[index(j)] /= sum;
          m.push_back(mask ? mask(head, at.first + i, j) : 1);
          inner += p[index(j)] * m[index(j)] * at.dot(dy, i, v, j);
        }
        for (std::int64_t j = 0; j < at.length; ++j) {
          const double ds = p[index(j)] * (m[index(j)] * at.dot(dy, i, v, j) - inner) * scale;
          const double weight = p[index(j)] * m[index(j)];
          for (std::int64_t c = 0; c < size; ++c) {
            out.y[at.at(i, c)] += weight * v[at.at(j, c)];
            out.dv[at.at(j, c)] += weight * dy[at.at(i, c)];
            out.dq[at.at(i, c)] += ds * k[at.at(j, c)];
            out.dk[at.at(j, c)] += ds * q[at.at(i, c)];
          }
        }
      }
    }
  return out;
}

}  // namespace tests
