// A step of each rank alone, in layouts that use every kind of communicator: it needs no other rank.
#include <examples/run/warm_up.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/tensors.hpp>

TEST_CASE("warm up: each rank does its part of a step without the others") {
  for (const MeshShape layout : {MeshShape{2, 2, 2}, MeshShape{1, 1, 4}, MeshShape{4, 2, 1}})
    for (const auto zero : {ZeroStage::none, ZeroStage::weights})
      for (int rank = 0; rank < layout.size(); ++rank) {
        if (zero != ZeroStage::none && layout.data == 1) continue;
        INFO("layout ", to_text(layout), " rank ", rank);
        Cpu dev;
        TrainingOptions options{.layout = layout, .pipeline = {.schedule = ZeroBubble{}}};
        options.store.sharding.stage = zero;
        int described = 0;
        const auto describe = [&](ModelBuilder<Cpu>& build) {
          ++described;
          return everything(build);
        };
        CHECK(message_of([&] {
                examples::warm_up_alone<Cpu>(dev, options, rank, describe,
                                             everything_batch(dev, 0, 0));
              }) == "no error");
        CHECK(described == 1);
      }
}
