// The collectives check: every collective in every element type, on patterns with known results. Each element of a sum
// comes from one rank (the others add 0), so a wrong element shows its source.
#pragma once

#include <dhp/comm/rank_list.hpp>
#include <dhp/tensor/tensor.hpp>

#include "examination.hpp"

#include <chrono>
#include <map>
#include <set>
#include <thread>

namespace examples::doctor {

struct WrongElement {
  std::string text{};  ///< such as "4 instead of 3 as element 2 of all_reduce (sum) of 1037 f32"
  int source = -1;     ///< rank that the element comes from; -1: several
};

/// Runs the collectives of one rank and keeps the first wrong element. Comm: dhp::Comm<Dev>, or a test's fake.
template <class Dev, class Comm = dhp::Comm<Dev>>
class CollectivePatterns {
 public:
  /// bad: this rank deliberately adds a wrong element to a sum.
  CollectivePatterns(Dev& dev, Comm comm, bool bad)
      : dev_(dev), comm_(std::move(comm)), n_(comm_.size()), rank_(comm_.rank()), bad_(bad) {}

  /// Returns the first wrong element; its text is empty if all are right.
  [[nodiscard]] const WrongElement& wrong() const { return wrong_; }

  template <class T>
  void all_of(std::int64_t count) {
    const auto whole = n_ * count;
    // All values and sums are whole numbers that every type can hold.
    const auto part = [&](auto i) { return i % n_ == rank_ ? 1 + i % 5 : 0; };
    const auto own = [](int rank, std::int64_t i) { return (rank * 3 + i) % 100; };
    const auto mine = [&](auto i) { return own(rank_, i); };
    const auto zero = [](auto) { return 0; };

    auto sum = tensor<T>(count, [&](auto i) { return part(i) + (bad_ && i == rank_ ? 1 : 0); });
    comm_.all_reduce(dev_, sum.mut()).wait(dev_);
    compare<T>(
        sum, "all_reduce (sum)", [&](auto i) { return i % n_; }, [](auto i) { return 1 + i % 5; });
    for (const auto reduce : {dhp::Reduce::max, dhp::Reduce::min}) {
      const bool max = reduce == dhp::Reduce::max;
      auto x = tensor<T>(count, [&](auto i) { return (rank_ + i) % n_ % 100 + i % 5; });
      comm_.all_reduce(dev_, x.mut(), reduce).wait(dev_);
      compare<T>(x, max ? "all_reduce (max)" : "all_reduce (min)", any,
                 [&](auto i) { return (max ? std::min(n_ - 1, 99) : 0) + i % 5; });
    }
    auto block = tensor<T>(count, zero);
    comm_.reduce_scatter(dev_, tensor<T>(whole, part), block.mut()).wait(dev_);
    compare<T>(block, "reduce_scatter", any, [&](auto i) { return 1 + (rank_ * count + i) % 5; });

    const auto sender = [&](auto i) { return static_cast<int>(i / count); };
    auto all = tensor<T>(whole, zero);
    comm_.all_gather(dev_, tensor<T>(count, mine), all.mut()).wait(dev_);
    compare<T>(all, "all_gather", sender, [&](auto i) { return own(sender(i), i % count); });
    comm_.all_to_all(dev_, tensor<T>(whole, mine), all.mut()).wait(dev_);
    compare<T>(all, "all_to_all", sender,
               [&](auto i) { return own(sender(i), rank_ * count + i % count); });

    const int root = n_ - 1, next = (rank_ + 1) % n_, before = (rank_ + n_ - 1) % n_;
    auto x = rank_ == root ? tensor<T>(count, mine) : tensor<T>(count, zero);
    comm_.broadcast(dev_, x.mut(), root).wait(dev_);
    compare<T>(
        x, "broadcast", [&](auto) { return root; }, [&](auto i) { return own(root, i); });
    const auto compare_with_before = [&](const auto& received, const char* operation) {
      compare<T>(
          received, operation, [&](auto) { return before; },
          [&](auto i) { return own(before, i); });
    };
    auto shifted = tensor<T>(count, zero);
    comm_.shift(dev_, tensor<T>(count, mine), shifted.mut()).wait(dev_);
    compare_with_before(shifted, "shift");
    comm_.send(dev_, tensor<T>(count, mine), next);
    comm_.recv(dev_, x.mut(), before);
    compare_with_before(x, "send and recv");
  }
  /// Checks two groups: the even ranks and the odd ranks.
  void groups() {
    auto group = comm_.split(rank_ % 2, rank_);
    auto one = tensor<float>(1, [&](auto) { return rank_ + 1; });
    group.all_reduce(dev_, one.mut()).wait(dev_);
    int sum = 0;
    for (int rank = rank_ % 2; rank < n_; rank += 2) sum += rank + 1;
    compare<float>(one, "all_reduce (sum) in a group", any, [&](auto) { return sum; });
  }

 private:
  [[nodiscard]] static int any(std::int64_t) { return -1; }

  template <class T, class F>
  [[nodiscard]] dhp::Tensor<Dev> tensor(std::int64_t count, F value) {
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values.push_back(T(static_cast<float>(value(i))));
    return dhp::Tensor<Dev>::from_host(dev_, dhp::Shape{count}, values);
  }
  template <class T, class Source, class F>
  void compare(const dhp::Tensor<Dev>& result, const char* operation, Source source, F expected) {
    const auto values = result.template to_host<T>(dev_);
    for (std::size_t at = 0; at < values.size() && wrong_.text.empty(); ++at) {
      const auto i = static_cast<std::int64_t>(at);
      const auto got = static_cast<float>(values[at]), wanted = static_cast<float>(expected(i));
      if (got != wanted)
        wrong_ = {dhp::concat(got, " instead of ", wanted, " as element ", i, " of ", operation,
                              " of ", values.size(), " ", dhp::dtype_of<T>()),
                  static_cast<int>(source(i))};
    }
  }

  Dev& dev_;
  Comm comm_;
  int n_, rank_;
  bool bad_;
  WrongElement wrong_{};
};

/// found: each rank's first wrong element, with an empty text if all are right. If several ranks got the same wrong
/// element, its source is the suspect, else the rank that got it. who(rank): the rank's name.
[[nodiscard]] std::vector<Problem> judge_collectives(const std::vector<WrongElement>& found,
                                                     auto who) {
  std::map<std::pair<std::string, int>, std::set<int>> receivers;
  for (std::size_t rank = 0; rank < found.size(); ++rank)
    if (!found[rank].text.empty())
      receivers[{found[rank].text, found[rank].source}].insert(static_cast<int>(rank));
  std::vector<Problem> problems;
  for (const auto& [wrong, ranks] : receivers) {
    const auto& [text, source] = wrong;
    problems.push_back(
        {Verdict::failed, ranks.size() > 1 && source >= 0 ? std::set<int>{source} : ranks,
         dhp::concat(ranks.size() == 1 ? who(*ranks.begin()) : dhp::rank_list(ranks), " got ", text,
                     source < 0 ? "" : ", which comes from " + who(source),
                     "; run the check again over another network interface, then take that host "
                     "out of the cluster")});
  }
  return problems;
}

template <class Dev>
[[nodiscard]] Finding check_collectives(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("one rank has no partner");
  if (exam.fault("missing-rank"))
    std::this_thread::sleep_for(
        std::chrono::duration<double>(exam.options.run.comm_timeout.value_or(0) + 1.5));
  Finding finding;
  CollectivePatterns<Dev> patterns(exam.dev, exam.world, exam.fault("wrong-sum"));
  for (const auto type : {dhp::DType::f32, dhp::DType::f64, dhp::DType::bf16, dhp::DType::f16,
                          dhp::DType::i64, dhp::DType::i32, dhp::DType::u8})
    for (const std::int64_t count : {1, 1037, 100'003})
      if (count < 10'000 || !exam.options.quick)
        dhp::visit_any(type, [&]<class T>(dhp::TypeTag<T>) {
          patterns.template all_of<T>(std::max<std::int64_t>(count, exam.size()));
        });
  patterns.groups();

  const auto& own = patterns.wrong();
  const auto texts = gather_texts(exam.dev, exam.world, own.text);
  const auto sources = gather(exam.dev, exam.world, {static_cast<double>(own.source)});
  std::vector<WrongElement> found;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    found.push_back({texts[rank], static_cast<int>(sources[rank])});
  // If the gather is broken too, at least the rank that saw the error reports it.
  if (!own.text.empty()) found[static_cast<std::size_t>(exam.rank())] = own;
  finding.problems = judge_collectives(found, [&](int rank) { return exam.who(rank); });
  finding.notes = {
      "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, shift, send, recv and groups "
      "in 7 types"};
  return finding;
}

}  // namespace examples::doctor
