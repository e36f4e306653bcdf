#include <examples/doctor/collectives.hpp>
#include <tests/comm/ranks.hpp>

using namespace examples::doctor;

namespace {

// A communicator that changes the last byte of the result of one operation.
struct Spoiling {
  Comm<Cpu> comm;
  std::string operation;

  int rank() const { return comm.rank(); }
  int size() const { return comm.size(); }
  Event<Cpu> all_reduce(Cpu& dev, View<Cpu> x, Reduce reduce = Reduce::sum) {
    return spoil(comm.all_reduce(dev, x, reduce), x, name_of(reduce));
  }
  Event<Cpu> reduce_scatter(Cpu& dev, ConstView<Cpu> in, View<Cpu> out) {
    return spoil(comm.reduce_scatter(dev, in, out), out, "reduce_scatter");
  }
  Event<Cpu> all_gather(Cpu& dev, ConstView<Cpu> in, View<Cpu> out) {
    return spoil(comm.all_gather(dev, in, out), out, "all_gather");
  }
  Event<Cpu> broadcast(Cpu& dev, View<Cpu> x, int root) {
    return spoil(comm.broadcast(dev, x, root), x, "broadcast");
  }
  Event<Cpu> all_to_all(Cpu& dev, ConstView<Cpu> in, View<Cpu> out) {
    return spoil(comm.all_to_all(dev, in, out), out, "all_to_all");
  }
  Event<Cpu> shift(Cpu& dev, ConstView<Cpu> in, View<Cpu> out) {
    return spoil(comm.shift(dev, in, out), out, "shift");
  }
  void send(Cpu& dev, Tensor<Cpu> x, int to) { comm.send(dev, std::move(x), to); }
  void recv(Cpu& dev, View<Cpu> x, int from) {
    comm.recv(dev, x, from);
    spoil({}, x, "send and recv");
  }
  Spoiling split(int color, int key) {
    return {comm.split(color, key), operation == "group" ? "sum" : ""};
  }
  Event<Cpu> spoil(Event<Cpu> event, View<Cpu> x, const std::string& done) const {
    event.wait();
    if (done == operation) x.bytes()[x.size_bytes() - 1] ^= std::byte{1};
    return event;
  }
};

// Returns the first wrong element of each rank. Only rank 1 changes results.
std::vector<WrongElement> found_on(int ranks, const std::string& spoiled, int bad_rank = -1) {
  return on_ranks(ranks, [&](Comm<Cpu>& world, Cpu& dev) {
    CollectivePatterns<Cpu, Spoiling> patterns(
        dev, Spoiling{world, world.rank() == 1 ? spoiled : ""}, world.rank() == bad_rank);
    for (const auto type :
         {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8})
      for (const std::int64_t count : {7, 300})
        visit_any(type, [&]<class T>(TypeTag<T>) { patterns.template all_of<T>(count); });
    patterns.groups();
    return patterns.wrong();
  });
}

std::vector<Problem> judged(const std::vector<WrongElement>& found) {
  return judge_collectives(found, [](int rank) { return concat("rank ", rank); });
}

}  // namespace

TEST_CASE("collectives: communicators of threads pass the checks") {
  for (const int ranks : {2, 3, 4, 7}) CHECK(judged(found_on(ranks, "")).empty());
}

TEST_CASE("collectives: a wrong result of one rank names that rank and the operation") {
  for (const std::string operation :
       {"sum", "max", "min", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "shift",
        "send and recv", "group"}) {
    CAPTURE(operation);
    const auto problems = judged(found_on(4, operation));
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].ranks == std::set<int>{1});
    CHECK(problems[0].verdict == Verdict::failed);
    CHECK(problems[0].sentence.starts_with("rank 1 got "));
    CHECK(has(problems[0].sentence, operation));
  }
}

TEST_CASE("collectives: a wrong element in a sum names the rank that it comes from") {
  for (const int bad : {0, 2}) {
    const auto problems = judged(found_on(3, "", bad));
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].ranks == std::set<int>{bad});
    CHECK(problems[0].sentence.starts_with("ranks 0, 1 and 2 got "));
    CHECK(has(problems[0].sentence, concat(", which comes from rank ", bad)));
  }
}
