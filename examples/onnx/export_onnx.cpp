// Writes a saved model as an ONNX file for other programs: a BERT or a decoder, published or saved by a trainer, or a
// ResNet of train_resnet50.
#include "../data/model_folder.hpp"
#include "../gpt/published.hpp"
#include "../options/checked_options.hpp"
#include "../options/fine_tuning.hpp"
#include "../report/host_memory.hpp"
#include "../report/progress.hpp"
#include "bert_graph.hpp"
#include "gpt_graph.hpp"
#include "resnet_graph.hpp"

#include <iostream>
#include <string>

namespace {

using namespace examples;
using Planned = dhp::ModelBuilder<dhp::Meta>;

/// Loads the weights, with the adapters in the folder.
[[nodiscard]] OnnxWeights weights_of(const std::string& model, const std::string& folder,
                                     const OnnxWeights::Describe& describe) {
  const auto adapters = adapters_of(folder);
  const auto adapted = [&](Planned& build) {
    build.adapt(adapters);
    return describe(build);
  };
  return {model, adapted, OnnxGraph::max_bytes, adapters.scale()};
}

void write(OnnxGraph& graph, const OnnxWeights& weights, const std::string& output) {
  graph.write(output);
  std::cerr << dhp::concat("loaded ", weights.from(), "; wrote ", output, ": ", graph.nodes(),
                           " nodes, ", bytes_text(graph.weight_bytes()), " of weights, opset ",
                           OnnxGraph::opset, "\n");
}

void export_bert(const std::string& model, const std::string& folder, const std::string& predict,
                 const std::string& output) {
  const auto bert = load_published_bert(folder);
  const auto head = head_to_predict(bert, predict);
  const auto pooling = load_sentence_pooling(folder);
  const auto weights =
      weights_of(model, folder, [&](Planned& build) { return bert_with(build, bert, head); });
  OnnxBert graph(weights, bert);
  graph.build(head, bert.labels.size(), pooling);
  graph.note("max_sequence_length", dhp::concat(pooling.longest_of(bert.config)));
  if (head == BertHead::classes) graph.note("labels", nlohmann::json(bert.labels).dump());
  write(graph, weights, output);
}

void export_gpt(const std::string& model, const std::string& folder, const std::string& output) {
  const auto config = load_gpt_config(folder);
  const auto weights =
      weights_of(model, folder, [&](Planned& build) { return gpt(build, config); });
  OnnxGpt graph(weights, config);
  graph.build();
  graph.note("max_sequence_length", dhp::concat(config.positions));
  write(graph, weights, output);
}

void export_resnet(const std::string& model, const std::string& folder, const std::string& output) {
  const auto saved = load_saved_resnet(folder);
  const auto weights =
      weights_of(model, folder, [&](Planned& build) { return resnet(build, saved.config); });
  OnnxResNet graph(weights, saved);
  graph.build();
  graph.note("image_size", dhp::concat(saved.config.image_size));
  graph.note("labels", nlohmann::json(saved.labels).dump());
  write(graph, weights, output);
}

void run(const std::string& model, const std::string& output, const std::string& predict) {
  dhp::check(std::filesystem::exists(model), "", model, ": there is no such folder or file");
  dhp::check(output.ends_with(".onnx"), output, ": the output's name ends in .onnx");
  const auto folder = model_folder(model);
  const auto config = PublishedJson::config_of(folder);
  const auto kind = config.get("model_type", std::string("a model without a name"));
  if (kind == "bert") return export_bert(model, folder, predict, output);
  const bool decoder = kind == "gpt2" || kind == "llama";
  dhp::check(decoder || kind == "resnet", config.path(), ": its model is ", kind,
             "; dhp has bert, gpt2, llama and resnet");
  dhp::check(predict != "embeddings", "--predict embeddings: ", model, " is a ",
             decoder ? "decoder" : "ResNet", ", which gives logits");
  if (decoder) export_gpt(model, folder, output);
  else export_resnet(model, folder, output);
}

}  // namespace

int main(int argc, char** argv) {
  std::string model, output, predict = "automatic";
  CommandLine app("Writes a saved BERT, decoder or ResNet as an ONNX file.");
  app.add_option("MODEL", model,
                 "Checkpoint, folder of checkpoints, folder that --export wrote, or folder of a "
                 "published model")
      ->required();
  app.add_option("OUTPUT", output, "ONNX file to write")->required();
  app.add_option("--predict", predict,
                 "Output of a BERT: embeddings, logits, or automatic (logits of a classifier, "
                 "embeddings of other models)",
                 CLI::IsMember({"automatic", "embeddings", "logits"}))
      ->capture_default_str();
  if (const auto status = app.read(argc, argv)) return *status;
  return exit_status_of([&] {
    run(model, output, predict);
    return 0;
  });
}
