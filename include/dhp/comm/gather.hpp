// gather and gather_texts: every rank's numbers or text, at all ranks of a group. open_messages connects pairs of
// ranks.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/rendezvous/wire.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp {
namespace detail {
/// For groups in which only some ranks send messages: NCCL needs all ranks at the first one, and this call provides
/// it. Collective.
template <class Dev>
void open_messages(Dev& dev, Comm<Dev>& comm, CallSite where = CallSite::current()) {
  const int n = comm.size(), me = comm.rank();
  if (n == 1) return;
  auto word = Tensor<Dev>::zeros(dev, DType::u8, Shape{1});
  comm.send(dev, word.share(), (me + 1) % n, where);
  Tensor<Dev> got(dev, DType::u8, Shape{1});
  comm.recv(dev, got.mut(), (me + n - 1) % n, where);
}
}  // namespace detail

/// Every rank's `own`, of equal length; rank r's numbers start at r * own.size(). Collective.
template <class Dev>
[[nodiscard]] std::vector<double> gather(Dev& dev, Comm<Dev>& comm, const std::vector<double>& own,
                                         CallSite where = CallSite::current()) {
  const auto count = std::ssize(own);
  const auto mine = Tensor<Dev>::from_host(dev, Shape{count}, own);
  Tensor<Dev> all(dev, DType::f64, Shape{comm.size(), count});
  comm.all_gather(dev, mine, all.mut(), where).wait(dev);
  comm.synchronize(dev);
  return all.template to_host<double>(dev);
}

/// Every rank's text, of any length. Collective.
template <class Dev>
[[nodiscard]] std::vector<std::string> gather_texts(Dev& dev, Comm<Dev>& comm,
                                                    const std::string& own,
                                                    CallSite where = CallSite::current()) {
  std::string padded;
  detail::append_field(padded, own);
  std::size_t longest = 0;
  for (const double length : gather(dev, comm, {static_cast<double>(padded.size())}, where))
    longest = std::max(longest, detail::as_size(length));
  padded.resize(longest);
  const auto width = static_cast<std::int64_t>(longest);
  const auto mine = Tensor<Dev>::from_host(dev, Shape{width},
                                           std::vector<std::uint8_t>(padded.begin(), padded.end()));
  Tensor<Dev> all(dev, DType::u8, Shape{comm.size(), width});
  comm.all_gather(dev, mine, all.mut(), where).wait(dev);
  comm.synchronize(dev);
  const auto bytes = all.template to_host<std::uint8_t>(dev);
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto first = bytes.begin() + rank * width;
    const std::string field(first, first + width);
    texts.push_back(detail::FieldReader(field).field().value_or(""));
  }
  return texts;
}
}  // namespace dhp
