#include <examples/doctor/collectives.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;
using namespace tests;

namespace {

// A communicator on one of whose ranks an operation spoils the first byte of what it gives.
class Spoiling {
 public:
  Spoiling(Comm<Cpu> comm, std::string operation, bool spoils)
      : comm_(std::move(comm)), operation_(std::move(operation)), spoils_(spoils) {}
  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  int send_capacity() const { return comm_.send_capacity(); }
  std::string transport() const { return comm_.transport(); }
  Event<Cpu> all_reduce(Cpu& dev, View<Cpu> x, Reduce reduce, CallSite where) {
    return spoil(comm_.all_reduce(dev, x, reduce, where), x, name_of(reduce));
  }
  Event<Cpu> reduce_scatter(Cpu& dev, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
    return spoil(comm_.reduce_scatter(dev, in, out, where), out, "reduce_scatter");
  }
  Event<Cpu> all_gather(Cpu& dev, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
    return spoil(comm_.all_gather(dev, in, out, where), out, "all_gather");
  }
  Event<Cpu> broadcast(Cpu& dev, View<Cpu> x, int root, CallSite where) {
    return spoil(comm_.broadcast(dev, x, root, where), x, "broadcast");
  }
  Event<Cpu> all_to_all(Cpu& dev, ConstView<Cpu> in, View<Cpu> out, CallSite where) {
    return spoil(comm_.all_to_all(dev, in, out, where), out, "all_to_all");
  }
  void send(Cpu& dev, Tensor<Cpu> x, int to, CallSite where) {
    comm_.send(dev, std::move(x), to, where);
  }
  void recv(Cpu& dev, View<Cpu> x, int from, CallSite where) {
    comm_.recv(dev, x, from, where);
    spoil({}, x, "send and recv");
  }
  void barrier(CallSite where) { comm_.barrier(where); }
  Spoiling split(int color, int key, CallSite where) {
    return {comm_.split(color, key, where), operation_ == "group" ? "sum" : "", spoils_};
  }
  void abort(const std::string& why) { comm_.abort(why); }

 private:
  Event<Cpu> spoil(Event<Cpu> event, View<Cpu> x, const std::string& operation) {
    event.wait();
    if (operation == operation_ && spoils_) x.bytes()[x.size_bytes() - 1] ^= std::byte{1};
    return event;
  }
  Comm<Cpu> comm_;
  std::string operation_;
  bool spoils_;
};

// What each rank of a world finds.
std::vector<std::optional<WrongElement>> found_on(int ranks, const std::string& spoiled,
                                                  int bad_rank = -1) {
  return on_ranks(ranks, [&](Comm<Cpu>& world, Cpu& dev) {
    CollectivePatterns<Cpu> patterns(
        dev, Comm<Cpu>::of(Spoiling(world, spoiled, world.rank() == 1)), world.rank() == bad_rank);
    for (const auto type :
         {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
      for (const std::int64_t count : {7, 300})
        visit_any(type, [&]<class T>(Tag<T>) { patterns.template all_of<T>(count); });
    patterns.groups();
    return patterns.wrong();
  });
}

std::vector<Problem> judged(const std::vector<std::optional<WrongElement>>& found) {
  return judge_collectives(found, [](int rank) { return concat("rank ", rank); });
}

}  // namespace

TEST_CASE("collectives: nothing is wrong with those of threads") {
  for (const int ranks : {2, 3, 4, 7})
    for (const auto& wrong : found_on(ranks, "")) CHECK_FALSE(wrong.has_value());
}

TEST_CASE("collectives: what one rank gets wrongly is that rank's, whichever operation it is") {
  for (const std::string operation : {"sum", "max", "min", "reduce_scatter", "all_gather",
                                      "broadcast", "all_to_all", "send and recv", "group"}) {
    CAPTURE(operation);
    const auto found = found_on(4, operation);
    for (const std::size_t rank : {0, 2, 3}) CHECK_FALSE(found[rank].has_value());
    REQUIRE(found[1].has_value());
    CHECK(found[1]->operation.find(operation) != std::string::npos);
    const auto problems = judged(found);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].ranks == std::set<int>{1});
    CHECK(problems[0].verdict == Verdict::failed);
    CHECK(problems[0].sentence.starts_with("rank 1 got "));
  }
}

TEST_CASE("collectives: who brings a wrong element to a sum is named by all") {
  for (const int bad : {0, 2}) {
    const auto problems = judged(found_on(3, "", bad));
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].ranks == std::set<int>{bad});
    CHECK(problems[0].sentence.starts_with(
        concat("every rank got ", bad + 2, " instead of ", bad + 1, " as element ", bad,
               " of all_reduce (sum) of 7 f32, which rank ", bad, " alone brings")));
  }
}
