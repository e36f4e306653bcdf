#include <examples/options/fine_tuning.hpp>
#include <examples/report/class_measures.hpp>
#include <examples/run/patience.hpp>
#include <tests/support/folder.hpp>

using namespace examples;

namespace {
/// Counts samples from logits in which the classes `found` are the largest.
ClassCounts counts(std::size_t classes, const std::vector<std::int32_t>& labels,
                   const std::vector<std::int32_t>& found) {
  std::vector<float> logits(labels.size() * classes, 0);
  for (std::size_t at = 0; at < found.size(); ++at)
    logits[at * classes + static_cast<std::size_t>(found[at])] = 1;
  ClassCounts result(classes);
  const dhp::Shape shape{static_cast<std::int64_t>(labels.size()),
                         static_cast<std::int64_t>(classes)};
  result.add(dhp::HostArray(shape, logits), labels);
  return result;
}
}  // namespace

// Expected values: scikit-learn's accuracy_score, f1_score and matthews_corrcoef of the same lists.
TEST_CASE("class measures: two classes match values computed by hand") {
  const auto result = counts(2, {0, 1, 1, 0, 1, 0, 1, 1}, {0, 1, 0, 0, 1, 1, 1, 0});
  CHECK(result.accuracy() == Approx(0.625));
  CHECK(result.f1() == Approx(0.6666666667));
  CHECK(result.matthews() == Approx(0.2581988897));
  CHECK(counts(2, {0, 1}, {0, 1}).matthews() == Approx(1));
  CHECK(counts(2, {0, 1, 0}, {0, 0, 0}).matthews() == 0);
}
TEST_CASE("class measures: several classes match values computed by hand, one of them absent") {
  const auto result = counts(4, {0, 1, 2, 2, 1, 0, 2}, {0, 2, 2, 1, 1, 0, 2});
  CHECK(result.accuracy() == Approx(0.7142857143));
  CHECK(result.f1() == Approx(0.7222222222));
  CHECK(result.matthews() == Approx(0.5625));
}
TEST_CASE("class measures: the loss is the mean cross-entropy") {
  ClassCounts result(2);
  result.add(dhp::HostArray({2, 2}, std::vector<double>{1000, 1000, 0, std::log(3.0)}),
             std::vector<std::int32_t>{0, 1});
  CHECK(result.loss() == Approx((std::log(2.0) + std::log(4.0 / 3)) / 2));
  CHECK(ClassCounts(2).measures() ==
        decltype(result.measures()){{"loss", 0}, {"accuracy", 0}, {"f1", 0}, {"matthews", 0}});
}

TEST_CASE("patience: training stops after the given evaluations without a better value") {
  dhp::BestMeasure best;
  Patience patience("loss", 2, best);
  const auto takes = [&](std::int64_t step, double loss) {
    patience.take(step, {{"accuracy", 1}, {"loss", loss}});
    return patience.is_over();
  };
  CHECK_FALSE(takes(0, 3));
  CHECK_FALSE(takes(5, 2));
  CHECK_FALSE(takes(10, 2));
  CHECK_FALSE(takes(15, 1.5));
  CHECK_FALSE(takes(20, 1.6));
  CHECK(takes(25, 1.5));
  CHECK(patience.sentence() ==
        "loss was best after step 15 (1.5), and no better in 2 evaluations since");
  CHECK_THROWS_WITH_AS(patience.take(30, {{"top1", 1}}), Contains("measure top1"), dhp::Error);
  Patience later("loss", 3, best);       // of a continued run
  later.take(25, {{"loss", 1}});         // repeats the last evaluation
  later.take(27, {{"loss", 1}}, false);  // after a restart
  later.take(30, {{"loss", 1.6}});
  CHECK(later.is_over());
  CHECK(later.sentence() ==
        "loss was best after step 15 (1.5), and no better in 3 evaluations since");
  const Patience other("accuracy", 1, best);
  CHECK_FALSE(other.is_over());
  dhp::BestMeasure none;
  Patience no_number("loss", 2, none);
  no_number.take(1, {{"loss", std::nan("")}});
  no_number.take(2, {{"loss", 5}});
  no_number.take(3, {{"loss", std::nan("")}});
  CHECK_FALSE(no_number.is_over());
  Patience never("", 1, none);
  never.take(1, {});
  never.take(2, {});
  CHECK_FALSE(never.is_over());
}

TEST_CASE("fine-tuning: freeze patterns and adapters choose the trained parameters") {
  std::set<std::string> found;
  const FineTuning some{.freeze = {"bert.embeddings.*", "*.0.?.weight"}};
  CHECK_FALSE(some.trains("bert.embeddings.LayerNorm.bias", "", found));
  CHECK(some.trains("layer.0.ab.weight", "", found));
  CHECK(found == std::set<std::string>{"bert.embeddings.*"});
  FineTuning adapters{.freeze = {"classifier.bias"}};
  adapters.adapters.layers = {"query"};
  CHECK(adapters.trains("x.query.lora_A.weight", "classifier.", found));
  CHECK(adapters.trains("classifier.weight", "classifier.", found));
  CHECK_FALSE(adapters.trains("classifier.bias", "classifier.", found));
  CHECK_FALSE(adapters.trains("x.query.weight", "classifier.", found));
  CHECK(adapters.trains("classifier.lora_A.weight", "classifier.", found));
  adapters.export_adapter = "folder";
  CHECK_THROWS_WITH_AS((void)adapters.trains("classifier.lora_A.weight", "classifier.", found),
                       Contains("would adapt a layer of the head"), dhp::Error);
}

TEST_CASE("fine-tuning: an adapter's configuration has PEFT's format") {
  const tests::Folder folder;
  const auto write = [&](const std::string& text) {
    std::ofstream(folder / "adapter_config.json") << text;
  };
  write(adapter_config({.layers = {"query", "value"}, .rank = 4, .alpha = 8, .dropout = 0.1},
                       "classifier."));
  const auto read = read_adapter_config(folder.path);
  CHECK(read.layers == std::vector<std::string>{"query", "value"});
  CHECK(read.scale() == 2);
  CHECK(read.dropout == 0.1);
  const auto says = [&](const std::string& text, const char* words) {
    write(text);
    CHECK_THROWS_WITH_AS((void)read_adapter_config(folder.path), Contains(words), dhp::Error);
  };
  says("[]", "is damaged: it is no JSON object");
  says(R"({"r": 4, "lora_alpha": 8})", "is damaged: r and lora_alpha must be numbers");
  says(R"({"r": 0, "lora_alpha": 8, "target_modules": ["a"]})", "it has rank 0");
  says(R"({"peft_type": "LOHA", "r": 4})", "its peft_type is \"LOHA\"; dhp has plain LoRA");
  for (const std::string key : {"use_dora", "lora_bias"})
    says(R"({"r": 4, "lora_alpha": 8, "target_modules": ["a"], ")" + key + R"(": true})",
         (key + " is true; dhp has plain LoRA").c_str());
  says(R"({"layer_replication": [[0, 2], [1, 2]]})", "layer_replication is [[0,2],[1,2]]; dhp");
  says(R"({"init_lora_weights": "pissa"})", "is \"pissa\", which also changes the model's");
  const std::string some = R"({"r": 4, "lora_alpha": 8, "target_modules": ["a"], )";
  says(some + R"("layers_to_transform": [0, 2]})", "layers_to_transform is [0,2]; dhp has");
  write(some + R"("layers_to_transform": null, "layers_pattern": [], "exclude_modules": []})");
  CHECK(read_adapter_config(folder.path).rank == 4);
  CHECK_THROWS_WITH_AS((void)read_adapter_config("/nowhere"),
                       Contains("it is no adapter in PEFT's format"), dhp::Error);
}
