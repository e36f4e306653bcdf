// Placements: patterns, and the error for each mistake in a table.
#include <dhp/comm/meta_comm.hpp>
#include <dhp/cpu.hpp>
#include <dhp/ops/meta.hpp>
#include <tests/support/device_ranks.hpp>

namespace {

/// Returns the error for a model with this table on this many ranks.
std::string error_for(int ranks, const Placements& table,
                      const std::function<void(ModelBuilder<Cpu>&)>& describe) {
  return message_of([&] {
    on_ranks_of<Cpu>(ranks, [&](Cpu&, Comm<Cpu> world) {
      ModelBuilder<Cpu> build(world);
      build.place(table);
      describe(build);
      build.check_described();
    });
  });
}

void linear(ModelBuilder<Cpu>& build) { (void)Linear<Cpu>(build, "l", {.in = 6, .out = 4}); }
void norm(ModelBuilder<Cpu>& build) { (void)LayerNorm<Cpu>(build, "n", 6); }
void pair_of(ModelBuilder<Cpu>& build) {
  (void)FeedForward<Cpu>(build, "a", "b", {.columns = 6, .inner = 8});
}
void attention(ModelBuilder<Cpu>& build) {
  (void)SelfAttention<Cpu>(build, "s", {.heads = 6, .columns = 6, .max_length = 4});
}

}  // namespace

TEST_CASE("placements: patterns match names") {
  using dhp::detail::matches;
  CHECK(matches("layer.0.weight", "layer.0.weight"));
  CHECK_FALSE(matches("layer.0", "layer.0.weight"));
  CHECK_FALSE(matches("layer.0.weight", "layer.0"));
  CHECK(matches("*", ""));
  CHECK(matches("*.weight", "layer.0.weight"));
  CHECK_FALSE(matches("*.weight", "layer.0.weights"));
  CHECK(matches("layer.*.weight", "layer.0.conv.weight"));
  CHECK(matches("layer.{0,12}.*", "layer.12.bias"));
  CHECK_FALSE(matches("layer.{0,12}.*", "layer.1.bias"));
  CHECK(matches("{a.*,b}.{weight,bias}", "a.x.bias"));
  CHECK(matches("{a.*,b}.{weight,bias}", "b.weight"));
  CHECK_FALSE(matches("{a.*,b}.{weight,bias}", "b.mean"));
  for (const auto* either : {"a{,b}", "a{b,}"}) CHECK(matches(either, "a"));
  CHECK(matches("{a", "{a"));
}

TEST_CASE("placements: right tables are accepted, and no table") {
  CHECK(error_for(2, {{"l.*", Placement::columns}}, linear) == "no error");
  CHECK(error_for(2, {{"l.weight", Placement::rows}, {"*", Placement::replicated}}, linear) ==
        "no error");
  CHECK(error_for(2, {{"l.*", Placement::columns}, {"*", Placement::replicated}}, linear) ==
        "no error");
  CHECK(error_for(3, {{"*", Placement::heads}}, attention) == "no error");
  CHECK(error_for(2, {{"*", Placement::replicated}}, attention) == "no error");
  CHECK(error_for(2, {}, pair_of) == "no error");
}

TEST_CASE("placements: each mistake is one sentence, on one rank and on two") {
  const Placements split{{"a.*", Placement::columns}, {"*", Placement::replicated}};
  for (const int ranks : {1, 2}) {
    const auto axis = concat("on a tensor axis of ", ranks);
    const auto says = [&](const Placements& table, auto describe, const std::string& words) {
      const auto sentence = error_for(ranks, table, describe);
      INFO(sentence);
      CHECK(has(sentence, words));
      CHECK(has(sentence, "a tensor axis of " + std::to_string(ranks)));
    };
    says({{"l.weight", Placement::rows}}, linear,
         "no row of the model's placements matches l.bias");
    says({{"m.*", Placement::rows}, {"*", Placement::columns}}, linear,
         "the row {\"m.*\", rows} of the model's placements decides nothing");
    says({{"*", Placement::columns}, {"l.*", Placement::columns}}, linear,
         "the row {\"l.*\", columns} of the model's placements decides nothing");
    says({{"*", Placement::heads}}, linear,
         "l.weight has the placement heads " + axis +
             ", but its layer can follow columns, rows, words or replicated; change its row");
    says({{"*", Placement::rows}}, norm,
         "n.weight has the placement rows " + axis + ", but its layer can follow only replicated");
    says({{"l.weight", Placement::rows}, {"*", Placement::columns}}, linear,
         "l.bias has the placement columns " + axis +
             ", but the placement rows of l.weight requires replicated; change its row");
    says({{"l.weight", Placement::columns}, {"*", Placement::replicated}}, linear,
         "l.bias has the placement replicated " + axis +
             ", but the placement columns of l.weight requires columns");
    says(split, pair_of,
         "b.weight has the placement replicated " + axis +
             ", but the placement columns of a.weight requires rows");
    says({{"*.query.*", Placement::heads}, {"*", Placement::replicated}}, attention,
         "s.key.weight has the placement replicated " + axis +
             ", but the placement heads of s.query.weight requires heads");
    const Placements shares{{"m.*", Placement::shares}, {"*", Placement::replicated}};
    says(shares, norm,
         "n.weight has the placement replicated " + axis +
             ", but ranks share the rows of its layer, which needs shares");
    says(shares, linear,
         "l.weight has the placement replicated " + axis +
             ", but ranks share the rows of its layer, which then needs columns");
    says(
        {{"n.*", Placement::shares}},
        [&](ModelBuilder<Cpu>& build) {
          (void)build.whole_rows();
          norm(build);
        },
        "n.weight has the placement shares " + axis + ", but its layer can follow only replicated");
  }
}

TEST_CASE("placements: sizes that ranks cannot share and a late table are refused") {
  CHECK(has(error_for(5, {{"*", Placement::columns}}, linear),
            "l.weight [4, 6], by columns, cannot be split over the tensor axis: 4 for 5 ranks, and "
            "each needs at least one; choose a smaller tensor axis"));
  CHECK(has(error_for(4, {{"*", Placement::heads}}, attention),
            "s, by heads: 6 heads cannot be split over a tensor axis of 4; choose the tensor axis "
            "among the divisors of the number of heads"));
  const auto shared = [](int key_heads) {
    return [=](ModelBuilder<Cpu>& build) {
      (void)SelfAttention<Cpu>(build, "s", {.heads = 6, .columns = 12, .key_heads = key_heads});
    };
  };
  CHECK(has(error_for(3, {{"*", Placement::heads}}, shared(2)),
            "s, by heads: 2 key heads cannot be split over a tensor axis of 3; choose the tensor "
            "axis among the divisors of the number of key heads"));
  CHECK(has(error_for(1, {{"*", Placement::heads}}, shared(4)),
            "s: 6 heads cannot share the keys and values of 4 key heads; choose a divisor of the "
            "number of heads"));
  CHECK(message_of([] {
          ModelBuilder<Cpu> build(Comm<Cpu>{});
          (void)SelfAttention<Cpu>(build, "s", {.heads = 2, .columns = 6, .rotary_base = 1e4});
        }) == "s: rotary positions turn pairs of columns, and a head has 3; choose an even number");
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  linear(build);
  CHECK(has(message_of([&] {
              build.place({{"*", Placement::columns}});
            }),
            "call place() before making the layers"));
}

TEST_CASE("placements: a rank's share of rows depends on rows, ranks and groups") {
  const auto shares = [](int ranks, int groups, std::int64_t rows) {
    std::vector<Range> all;
    for (int rank = 0; rank < ranks; ++rank)
      all.push_back(
          RowShares<Meta>(Comm<Meta>::of(MetaComm<Meta>({rank, ranks})), groups).local(rows));
    return all;
  };
  CHECK(shares(4, 0, 10) == std::vector<Range>{{0, 3}, {3, 6}, {6, 9}, {9, 10}});
  CHECK(shares(4, 0, 2) == std::vector<Range>{{0, 1}, {1, 2}, {2, 2}, {2, 2}});
  CHECK(shares(2, 8, 10) == std::vector<Range>{{0, 8}, {8, 10}});  // pieces of 2 rows
  CHECK(shares(1, 8, 10) == std::vector<Range>{{0, 10}});
}

TEST_CASE("placements: tensor groups have a default, and impossible ones are refused") {
  const auto groups_of = [](std::int64_t divisible, std::optional<int> wanted) {
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    if (wanted) build.group(*wanted);
    build.place({{"*", Placement::columns}}, divisible);
    return build.groups();
  };
  CHECK(groups_of(16, {}) == 0);
  CHECK(groups_of(0, 0) == 0);
  CHECK(groups_of(16, 0) == 8);
  CHECK(groups_of(16, 1) == 1);
  CHECK(groups_of(12, 0) == 12);
  CHECK(groups_of(96, 24) == 24);
  const auto placement_error = [&](int ranks, std::int64_t divisible, int wanted) {
    return message_of([&] {
      on_ranks_of<Cpu>(ranks, [&](Cpu&, Comm<Cpu> world) {
        ModelBuilder<Cpu> build(world);
        build.group(wanted);
        build.place({{"*", Placement::columns}}, divisible);
      });
    });
  };
  for (const int wanted : {5, -1})
    CHECK(has(placement_error(1, 16, wanted), concat("the model cannot be computed in ", wanted,
                                                     " tensor groups on a tensor axis of 1")));
  CHECK(has(placement_error(2, 16, 1),
            "and the groups have to divide the 16 equal parts of heads, channels or classes"));
  CHECK(has(placement_error(3, 16, 0),
            "a tensor axis of 3: its heads, channels or classes fall into 16 equal parts; choose a "
            "divisor"));
  const auto gain = [](std::optional<int> wanted) {
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    if (wanted) build.group(*wanted);
    build.place({{"gain", Placement::columns}, {"*", Placement::replicated}}, 4);
    (void)build.parameter({.name = "bias", .shape = {8}}, {.columns = 0});
    return build.parameter({.name = "gain", .shape = {8}}, {.columns = 0});
  };
  CHECK(gain({})->spec.local_shape() == Shape{8});
  CHECK(has(message_of([&] { (void)gain(0); }),
            "parameter gain is split, and this deterministic run computes its layer in 4 tensor "
            "groups: make it by pieces()"));
}

TEST_CASE("placements: a layer with a wrong number of input columns names its weight") {
  const auto message = message_of([] {
    on_ranks_of<Cpu>(2, [](Cpu& dev, Comm<Cpu> world) {
      ModelBuilder<Cpu> build(world);
      build.place({{"*", Placement::replicated}});
      Linear<Cpu> layer(build, "l", {.in = 6, .out = 4});
      ParameterList<Cpu> list;
      layer.parameters(list);
      ParameterStore<Cpu> store(dev, list, {});
      Tape<Cpu> tape({});
      (void)layer.forward(dev, random_tensor<float>(dev, {2, 3}, 1), tape);
    });
  });
  CHECK(has(message, "the weight l.weight, placement replicated, has 6 of 6 inputs"));
  CHECK(has(message, "but x has 3 columns"));
}
