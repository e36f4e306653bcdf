// Trains a ResNet to classify images, in any layout of ranks.
#include "../data/data.hpp"
#include "../data/saved_resnet.hpp"
#include "../run/training.hpp"
#include "model.hpp"

#include <iostream>

namespace {

int train(const examples::ResNetOptions& options, examples::ConnectedRank* met) {
  const auto data = examples::load_images(options);
  const auto config = examples::resnet_config(options, data);
  auto setup = examples::setup_of(
      options.run, met, data, config,
      [](auto& build, const auto& planned) { return examples::resnet(build, planned); });
  setup.measures = [](const std::vector<dhp::LossTerm>& terms) {
    return examples::Measures{{"loss", terms[0].mean()},
                              {"top1", examples::share(terms[0].correct, terms[0].count)},
                              {"top5", examples::share(terms[0].correct_in_five, terms[0].count)}};
  };
  setup.forward_flop = [flop = examples::resnet_forward_flop(config)](const auto& batch) {
    return flop * static_cast<double>(batch.samples);
  };
  setup.files = {{"config.json", examples::config_of({config, data.mean, data.deviation,
                                                      data.labels, options.exif})}};
  setup.head = "fc.";
  setup.waits_for_replicas = options.sync_batch_norm;
  setup.same_shapes = true;
  const int status = examples::run_training(setup);
  if (options.run.prints() && data.summary)
    if (const auto line = data.summary(); !line.empty()) std::cerr << line << "\n";
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_trainer([&] { return examples::parse_resnet(argc, argv, examples::on_gpu); },
                               train);
}
