// What every rank of a group has to say, at all of them: some numbers, or a text.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/meet/wire.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace dhp {

/// `own` of every rank, as long on each: those of rank r begin at r * own.size(). Collective.
template <class Dev>
[[nodiscard]] std::vector<double> gather(Dev& dev, Comm<Dev>& comm, const std::vector<double>& own,
                                         CallSite where = CallSite::current()) {
  const auto count = static_cast<std::int64_t>(own.size());
  const auto mine = Tensor<Dev>::from_host(dev, Shape{count}, own);
  Tensor<Dev> all(dev, DType::f64, Shape{comm.size(), count});
  comm.all_gather(dev, mine, all.mut(), where).wait(dev);
  return all.template to_host<double>(dev);
}

/// A text of each rank, of any length. Collective.
template <class Dev>
[[nodiscard]] std::vector<std::string> gather_texts(Dev& dev, Comm<Dev>& comm,
                                                    const std::string& own,
                                                    CallSite where = CallSite::current()) {
  std::string padded;
  comm::append_field(padded, own);
  std::size_t longest = 0;
  for (const double length : gather(dev, comm, {static_cast<double>(padded.size())}, where))
    longest = std::max(longest, static_cast<std::size_t>(length));
  padded.resize(longest);
  const auto width = static_cast<std::int64_t>(longest);
  const auto mine = Tensor<Dev>::from_host(dev, Shape{width},
                                           std::vector<std::uint8_t>(padded.begin(), padded.end()));
  Tensor<Dev> all(dev, DType::u8, Shape{comm.size(), width});
  comm.all_gather(dev, mine, all.mut(), where).wait(dev);
  const auto bytes = all.template to_host<std::uint8_t>(dev);
  std::vector<std::string> texts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto first = bytes.begin() + rank * width;
    const std::string field(first, first + width);
    texts.push_back(comm::FieldReader(field).field().value_or(""));
  }
  return texts;
}

}  // namespace dhp
