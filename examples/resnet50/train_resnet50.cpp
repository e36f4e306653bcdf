// Trains a ResNet to classify images, in any layout of ranks.
#include <dhp/comm/launch.hpp>
#include <dhp/default_device.hpp>

#include "../common/data.hpp"
#include "../common/training.hpp"
#include "model.hpp"

#include <iostream>

namespace {

using Dev = dhp::DefaultDevice;

void train(const examples::ResNetOptions& options) {
  const auto data = examples::load_images(options);
  const examples::ResNetConfig config{.depth = options.depth,
                                      .width = options.width,
                                      .image_size = data.image_size,
                                      .image_channels = data.channels,
                                      .classes = data.classes,
                                      .stem_stride = options.stem_stride,
                                      .zero_init_gamma = options.zero_init_gamma,
                                      .synchronised_batch_norm = options.sync_batch_norm,
                                      .label_smoothing = options.label_smoothing,
                                      .recompute = options.run.recompute};
  std::cerr << "images " << data.description << ", " << data.image_size << " x " << data.image_size
            << " x " << data.channels << ", " << data.classes << " classes\n";

  const auto measures = [](const std::vector<dhp::LossTerm>& terms) {
    return examples::Measures{{"loss", terms[0].mean()},
                              {"top1", examples::share(terms[0].correct, terms[0].count)},
                              {"top5", examples::share(terms[0].correct_in_five, terms[0].count)}};
  };
  dhp::run_ranks(options.run.mesh.size(),
                 [&](dhp::Comm<Dev> world) {
                   Dev dev({.threads = options.run.threads});
                   examples::TrainingRun run(
                       dev, std::move(world), options.run, data.train, data.held_out,
                       [&](dhp::Build<Dev>& build) { return examples::resnet(build, config); },
                       measures);
                   run.run();
                 },
                 {.timeout_s = options.run.comm_timeout});
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = examples::parse_resnet(argc, argv);
  if (parsed.exit_status) return *parsed.exit_status;
  try {
    train(parsed.options);
  } catch (const dhp::Error& error) {
    std::cerr << "error: " << error.sentence() << "\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
