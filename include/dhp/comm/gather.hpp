// gather and gather_texts collect the numbers or the text of every rank, on all ranks of a group.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/core/fields.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
/// Sends one message from each rank to the next. NCCL needs all ranks for a group's first message, so call this if only
/// some ranks send messages later. Collective.
template <class Dev>
void open_messages(Dev& dev, Comm<Dev>& comm, CallSite where = CallSite::current()) {
  const int n = comm.size(), me = comm.rank();
  if (n == 1) return;
  auto word = Tensor<Dev>::zeros(dev, DType::u8, Shape{1});
  comm.send(dev, word.share(), (me + 1) % n, where);
  Tensor<Dev> got(dev, DType::u8, Shape{1});
  comm.recv(dev, got.mut(), (me + n - 1) % n, where);
}
/// Returns `own` of every rank in one array, in rank order. Collective.
template <class Dev, class T>
[[nodiscard]] std::vector<T> rows_of_all(Dev& dev, Comm<Dev>& comm, const std::vector<T>& own,
                                         CallSite where) {
  const auto mine = Tensor<Dev>::from_host(dev, {std::ssize(own)}, own);
  Tensor<Dev> all(dev, dtype_of<T>(), {comm.size(), std::ssize(own)});
  comm.all_gather(dev, mine, all.mut(), where).wait(dev);
  comm.synchronize(dev);
  return all.template to_host<T>(dev);
}
}  // namespace detail

/// Returns every rank's `own`, all of equal length: the numbers of rank r start at r * own.size(). Collective.
template <class Dev>
[[nodiscard]] std::vector<double> gather(Dev& dev, Comm<Dev>& comm, const std::vector<double>& own,
                                         CallSite where = CallSite::current()) {
  return detail::rows_of_all(dev, comm, own, where);
}

/// Returns every rank's text, of any length, in rank order. Collective.
template <class Dev>
[[nodiscard]] std::vector<std::string> gather_texts(Dev& dev, Comm<Dev>& comm,
                                                    const std::string& own,
                                                    CallSite where = CallSite::current()) {
  const auto lengths = gather(dev, comm, {static_cast<double>(own.size())}, where);
  const auto longest = std::max(1.0, *std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::uint8_t> padded(own.begin(), own.end());
  padded.resize(detail::as_size(longest));
  const auto bytes = detail::rows_of_all(dev, comm, padded, where);
  std::vector<std::string> texts;
  auto first = bytes.begin();
  for (const double length : lengths) {
    texts.emplace_back(first, first + static_cast<std::ptrdiff_t>(length));
    first += std::ssize(padded);
  }
  return texts;
}

namespace detail {
/// Returns every rank's value, in rank order. T: any type that Fields can write and parse. Collective.
template <class Dev, class T>
[[nodiscard]] std::vector<T> gather_values(Dev& dev, Comm<Dev>& comm, const T& own,
                                           CallSite where = CallSite::current()) {
  std::vector<T> all;
  for (const auto& text : gather_texts(dev, comm, Fields::written(own), where)) {
    auto value = Fields::parsed<T>(text);
    check(value.has_value(),
          "a rank sends data that this one cannot read: start all with one build of the program");
    all.push_back(std::move(*value));
  }
  return all;
}
}  // namespace detail

}  // namespace dhp
