// The collectives check: every collective, in every element type, on patterns whose result is known. In sums each
// element is brought by one rank alone, so that a wrong one names who brought it.
#pragma once

#include "examination.hpp"

#include <chrono>
#include <optional>
#include <thread>

namespace examples::doctor {

/// An element that a rank got and should not have.
struct WrongElement {
  std::string operation{};  ///< "all_reduce (sum) of 1037 f32"
  std::int64_t element = 0;
  int brought_by = -1;  ///< -1: by several ranks
  double expected = 0;
  double got = 0;

  [[nodiscard]] std::string text() const {
    return dhp::concat("got ", got, " instead of ", expected, " as element ", element, " of ",
                       operation);
  }
  friend bool operator==(const WrongElement&, const WrongElement&) = default;
};

/// Runs them on one rank of a world; keeps the first element that is wrong.
template <class Dev>
class CollectivePatterns {
 public:
  /// bad: this rank brings a wrong element to a sum.
  CollectivePatterns(Dev& dev, dhp::Comm<Dev> comm, bool bad)
      : dev_(dev), comm_(std::move(comm)), n_(comm_.size()), rank_(comm_.rank()), bad_(bad) {}

  [[nodiscard]] const std::optional<WrongElement>& wrong() const { return wrong_; }

  template <class T>
  void all_of(std::int64_t count) {
    all_reduce<T>(count);
    blocks<T>(count);
    broadcast<T>(count);
    ring<T>(count);
  }
  /// The ranks of even and of odd numbers, each as a group.
  void groups() {
    auto group = comm_.split(rank_ % 2, rank_);
    const auto members = (n_ + 1 - rank_ % 2) / 2;
    auto one = tensor<float>(1, [&](auto) { return rank_ + 1; });
    group.all_reduce(dev_, one.mut()).wait(dev_);
    double sum = 0;
    for (int rank = rank_ % 2; rank < n_; rank += 2) sum += rank + 1;
    compare<float>(one, "all_reduce (sum) of 1 f32 in a group", -1, [&](auto) { return sum; });
    note("size of a group", 0, -1, members, group.size());
    note("rank in a group", 0, -1, rank_ / 2, group.rank());
  }

 private:
  // Whole numbers that every type can hold.
  [[nodiscard]] int brought(int rank, std::int64_t i) const {
    return i % n_ == rank ? static_cast<int>(1 + i % 5) : 0;
  }
  [[nodiscard]] int mixed(int rank, std::int64_t i) const {
    return static_cast<int>((rank + i) % n_ % 100 + i % 5);
  }
  [[nodiscard]] int own(int rank, std::int64_t i) const {
    return static_cast<int>((rank * 3 + i) % 100);
  }

  template <class T, class F>
  [[nodiscard]] dhp::Tensor<Dev> tensor(std::int64_t count, F value) {
    std::vector<T> values;
    values.reserve(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) values.push_back(T(static_cast<float>(value(i))));
    return dhp::Tensor<Dev>::from_host(dev_, dhp::Shape{count}, values);
  }
  void note(const std::string& operation, std::int64_t element, int by, double expected,
            double got) {
    if (!wrong_ && got != expected) wrong_ = WrongElement{operation, element, by, expected, got};
  }
  template <class T, class F>
  void compare(const dhp::Tensor<Dev>& result, const std::string& operation, int by, F expected) {
    const auto values = result.template to_host<T>(dev_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      note(operation, at, by == by_element ? static_cast<int>(at % n_) : by,
           static_cast<double>(expected(at)), static_cast<double>(static_cast<float>(values[i])));
    }
  }
  template <class T>
  [[nodiscard]] static std::string called(const char* operation, std::int64_t count) {
    return dhp::concat(operation, " of ", count, " ", dhp::dtype_of<T>());
  }

  template <class T>
  void all_reduce(std::int64_t count) {
    auto sum =
        tensor<T>(count, [&](auto i) { return brought(rank_, i) + (bad_ && i == rank_ ? 1 : 0); });
    comm_.all_reduce(dev_, sum.mut()).wait(dev_);
    compare<T>(sum, called<T>("all_reduce (sum)", count), by_element,
               [](auto i) { return 1 + i % 5; });
    for (const auto reduce : {dhp::Reduce::max, dhp::Reduce::min}) {
      auto x = tensor<T>(count, [&](auto i) { return mixed(rank_, i); });
      comm_.all_reduce(dev_, x.mut(), reduce).wait(dev_);
      const int extreme = reduce == dhp::Reduce::max ? std::min(n_ - 1, 99) : 0;
      const auto name = dhp::concat("all_reduce (", dhp::name_of(reduce), ")");
      compare<T>(x, called<T>(name.c_str(), count), -1, [&](auto i) { return extreme + i % 5; });
    }
  }
  template <class T>
  void blocks(std::int64_t block) {
    const auto whole = tensor<T>(n_ * block, [&](auto i) { return brought(rank_, i); });
    auto part = tensor<T>(block, [](auto) { return 0; });
    comm_.reduce_scatter(dev_, whole, part.mut()).wait(dev_);
    compare<T>(part, called<T>("reduce_scatter", n_ * block), -1,
               [&](auto i) { return 1 + (rank_ * block + i) % 5; });

    const auto mine = tensor<T>(block, [&](auto i) { return own(rank_, i); });
    auto all = tensor<T>(n_ * block, [](auto) { return 0; });
    comm_.all_gather(dev_, mine, all.mut()).wait(dev_);
    compare_blocks<T>(all, "all_gather", block, [](int, auto i) { return i; });

    const auto dealt = tensor<T>(n_ * block, [&](auto i) { return own(rank_, i); });
    auto exchanged = tensor<T>(n_ * block, [](auto) { return 0; });
    comm_.all_to_all(dev_, dealt, exchanged.mut()).wait(dev_);
    compare_blocks<T>(exchanged, "all_to_all", block,
                      [&](int, auto i) { return rank_ * block + i; });
  }
  // Block r is of rank r, which has brought element element_of(r, i) of its own as element i.
  template <class T, class F>
  void compare_blocks(const dhp::Tensor<Dev>& result, const char* operation, std::int64_t block,
                      F element_of) {
    const auto values = result.template to_host<T>(dev_);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const auto from = static_cast<int>(at / block);
      note(called<T>(operation, n_ * block), at, from, own(from, element_of(from, at % block)),
           static_cast<double>(static_cast<float>(values[i])));
    }
  }
  template <class T>
  void broadcast(std::int64_t count) {
    const int root = n_ - 1;
    auto x = tensor<T>(count, [&](auto i) { return rank_ == root ? own(root, i) : 0; });
    comm_.broadcast(dev_, x.mut(), root).wait(dev_);
    compare<T>(x, called<T>("broadcast", count), root, [&](auto i) { return own(root, i); });
  }
  template <class T>
  void ring(std::int64_t count) {
    const int next = (rank_ + 1) % n_, before = (rank_ + n_ - 1) % n_;
    auto sent = tensor<T>(count, [&](auto i) { return own(rank_, i); });
    auto got = tensor<T>(count, [](auto) { return 0; });
    comm_.send(dev_, std::move(sent), next);
    comm_.recv(dev_, got.mut(), before);
    compare<T>(got, called<T>("send and recv", count), before,
               [&](auto i) { return own(before, i); });
  }

  static constexpr int by_element = -2;  // element i is brought by rank i % n
  Dev& dev_;
  dhp::Comm<Dev> comm_;
  int n_, rank_;
  bool bad_;
  std::optional<WrongElement> wrong_;
};

/// What follows from the first wrong element of each rank. who(rank): its name.
template <class Who>
[[nodiscard]] std::vector<Problem> judge_collectives(
    const std::vector<std::optional<WrongElement>>& of_rank, Who who) {
  const std::string way_out =
      "; run the check again over another network interface, then take that host out of the "
      "cluster";
  const auto all_got = [&](const std::optional<WrongElement>& wrong) {
    return wrong == of_rank.front();
  };
  const auto& first = of_rank.front();
  if (first && first->brought_by >= 0 && of_rank.size() > 1 &&
      std::all_of(of_rank.begin(), of_rank.end(), all_got))
    return {{Verdict::failed,
             {first->brought_by},
             dhp::concat("every rank ", first->text(), ", which ", who(first->brought_by),
                         " alone brings", way_out)}};
  std::vector<Problem> problems;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    const auto& wrong = of_rank[rank];
    if (!wrong) continue;
    const auto from = wrong->brought_by >= 0
                          ? dhp::concat(", which ", who(wrong->brought_by), " brings")
                          : std::string();
    const int receiver = static_cast<int>(rank);
    problems.push_back({Verdict::failed,
                        {receiver},
                        dhp::concat(who(receiver), " ", wrong->text(), from, way_out)});
  }
  return problems;
}

template <class Dev>
[[nodiscard]] Finding check_collectives(Examination<Dev>& exam) {
  if (exam.size() == 1) return skipped("collectives", "one rank has nobody to talk to");
  if (exam.fault("missing-rank"))
    std::this_thread::sleep_for(
        std::chrono::duration<double>(exam.options.run.comm_timeout.value_or(0) + 1.5));
  Finding finding;
  finding.check = "collectives";
  CollectivePatterns<Dev> patterns(exam.dev, exam.world, exam.fault("wrong-sum"));
  const std::vector<std::int64_t> counts = exam.options.quick
                                               ? std::vector<std::int64_t>{1, 1037}
                                               : std::vector<std::int64_t>{1, 1037, 100'003};
  for (const auto type : {dhp::DType::f32, dhp::DType::f64, dhp::DType::bf16, dhp::DType::f16,
                          dhp::DType::i64, dhp::DType::i32, dhp::DType::u8})
    for (const auto count : counts)
      dhp::visit_any(type, [&]<class T>(dhp::Tag<T>) {
        patterns.template all_of<T>(std::max<std::int64_t>(count, exam.size()));
      });
  patterns.groups();

  std::string written;
  if (const auto& wrong = patterns.wrong()) {
    dhp::comm::append_field(written, wrong->operation);
    for (const double number :
         {static_cast<double>(wrong->element), static_cast<double>(wrong->brought_by),
          wrong->expected, wrong->got})
      dhp::comm::append_field(written, dhp::concat(number));
  }
  std::vector<std::optional<WrongElement>> of_rank;
  for (const auto& text : gather_texts(exam.dev, exam.world, written)) {
    dhp::comm::FieldReader reader(text);
    auto& wrong = of_rank.emplace_back();
    if (reader.empty()) continue;
    wrong.emplace();
    wrong->operation = reader.field().value_or("");
    const auto number = [&] { return std::strtod(reader.field().value_or("0").c_str(), nullptr); };
    wrong->element = static_cast<std::int64_t>(number());
    wrong->brought_by = static_cast<int>(number());
    wrong->expected = number();
    wrong->got = number();
  }
  finding.problems = judge_collectives(of_rank, [&](int rank) { return exam.who(rank); });
  // What carries the findings may itself be broken: then at least the rank that saw it says so.
  if (finding.problems.empty() && patterns.wrong())
    finding.problems.push_back({Verdict::failed,
                                {exam.rank()},
                                dhp::concat(exam.who(exam.rank()), " ", patterns.wrong()->text())});
  finding.summary =
      "right in 7 types: all_reduce, reduce_scatter, all_gather, broadcast, "
      "all_to_all, send, recv, groups";
  if (!finding.problems.empty()) finding.summary.clear();
  return finding;
}

}  // namespace examples::doctor
