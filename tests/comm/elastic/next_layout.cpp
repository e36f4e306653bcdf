#include <dhp/comm/elastic/next_layout.hpp>
#include <tests/support/test.hpp>

namespace {

/// The step time of a model, by its heads, its layers and the micro-batches of a step.
struct Model {
  int heads, layers, micro_batches;
  [[nodiscard]] std::optional<double> step_time(const MeshShape& layout) const {
    if (layout.tensor > heads || layout.pipeline > layers || layout.data > micro_batches) return {};
    const int rounds = (micro_batches + layout.data - 1) / layout.data + layout.pipeline - 1;
    return static_cast<double>(rounds) / (layout.tensor * layout.pipeline);
  }
  [[nodiscard]] LayoutRules rules(int least = 1, int most = 100) const {
    return {least, most, [*this](const MeshShape& layout) { return step_time(layout); }};
  }
};

std::vector<MeshShape> layouts_of(int ranks) {
  std::vector<MeshShape> all;
  for (int data = 1; data <= ranks; ++data)
    for (int tensor = 1; tensor <= ranks; ++tensor)
      for (int pipeline = 1; pipeline <= ranks; ++pipeline)
        if (data * tensor * pipeline == ranks) all.push_back({data, tensor, pipeline});
  return all;
}

}  // namespace

TEST_CASE("next layout: the rules hold for every loss in every layout of up to 8 ranks") {
  for (const Model& model : {Model{8, 8, 8}, Model{2, 5, 8}, Model{4, 3, 6}, Model{1, 1, 2}})
    for (const int most : {100, 2})
      for (int ranks = 2; ranks <= 8; ++ranks)
        for (const auto& before : layouts_of(ranks))
          for (int left = ranks - 1; left >= 1; --left) {
            CAPTURE(to_text(before));
            CAPTURE(left);
            const auto rules = model.rules(1, most);
            const auto result = next_layout(left, before, rules);
            REQUIRE(result.has_value());  // one rank can always go on alone
            const auto fits = [&](const MeshShape& layout) {
              return layout.data <= most && rules.step_time(layout).has_value();
            };
            REQUIRE(fits(*result));
            REQUIRE(result->size() <= left);
            for (int used = result->size() + 1; used <= left; ++used)  // no larger layout fits
              for (const auto& other : layouts_of(used)) REQUIRE_FALSE(fits(other));
            for (const auto& other : layouts_of(result->size()))  // none of this size is faster
              if (fits(other)) REQUIRE(*rules.step_time(*result) <= 1.01 * *rules.step_time(other));
            REQUIRE(next_layout(left, before, rules) == result);  // every member finds the same
          }
}

TEST_CASE("next layout: without times only the number of replicas changes") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const auto& before : layouts_of(ranks))
      for (int left = 0; left <= 10; ++left)
        for (const int least : {1, 2}) {
          const auto replicas = std::min(left / (before.tensor * before.pipeline), 3);
          const auto result = next_layout(left, before, {least, 3});
          REQUIRE(result.has_value() == (replicas >= least));
          if (result) REQUIRE(*result == MeshShape{replicas, before.tensor, before.pipeline});
        }
}

TEST_CASE("next layout: the most ranks, then the fastest, then the most similar layout") {
  const Model model{4, 6, 8};
  CHECK(next_layout(7, {2, 2, 2}, model.rules()) == MeshShape{7, 1, 1});
  CHECK(next_layout(7, {2, 2, 2}, model.rules(1, 2)) == MeshShape{2, 3, 1});
  CHECK(next_layout(7, {2, 2, 2}, model.rules(3, 3)) == MeshShape{3, 2, 1});
  CHECK_FALSE(next_layout(7, {2, 2, 2}, model.rules(8)).has_value());
  CHECK_FALSE(next_layout(0, {2, 2, 2}, model.rules()).has_value());
  const auto equal = [](const MeshShape& layout) {
    return std::optional(layout.data == 8 ? 1.02 : 1 + 0.001 * layout.tensor);
  };
  CHECK(next_layout(8, {2, 2, 1}, {1, 8, equal}) == MeshShape{4, 2, 1});
  CHECK(next_layout(8, {7, 1, 1}, {1, 8, equal}) == MeshShape{4, 1, 2});  // not 4x2x1
  CHECK(next_layout(8, {1, 1, 3}, {1, 8, equal}) == MeshShape{4, 1, 2});
  CHECK(next_layout(8, {1, 1, 4}, {1, 8, equal}) == MeshShape{2, 1, 4});
}
