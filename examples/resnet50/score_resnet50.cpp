// Computes logits of images with a ResNet that train_resnet50 has saved, in any layout of ranks.
#include <dhp/default_device.hpp>

#include "../data/saved_resnet.hpp"
#include "../report/progress.hpp"
#include "../run/scored_run.hpp"

int main(int argc, char** argv) {
  using Dev = dhp::DefaultDevice;
  const auto parsed = examples::parse_score_resnet(argc, argv, !Dev::host_accessible);
  if (parsed.exit_status) return *parsed.exit_status;
  return examples::exit_status_of([&] {
    const auto prepared = examples::prepare_images(parsed.options);
    examples::start_scoring(parsed.options, prepared, [&](dhp::ModelBuilder<Dev>& build) {
      return examples::resnet(build, prepared.resnet->config);
    });
    return 0;
  });
}
