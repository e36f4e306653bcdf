// Recorded steps, on any device that can record: see dhp/train/step_recorder.hpp.
#pragma once

#include <dhp/ops/elementwise.hpp>
#include <dhp/train/step_recorder.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

template <dhp::detail::RecordingDevice Dev>
class StepRecorderCases {
 public:
  static void recorded() {
    Steps steps;
    using enum dhp::detail::Recording;
    CHECK(steps(where_alike, {1, 2}) == std::vector<float>{2, 3});
    CHECK(!steps.recorder.replayed());
    CHECK(steps(where_alike, {3, 4}) == std::vector<float>{4, 5});
    CHECK(steps.issued == 2);
    CHECK(steps(where_alike, {5, 6}) == std::vector<float>{6, 7});
    CHECK(steps.issued == 2);
    CHECK(steps.recorder.replayed());
    CHECK(steps(where_alike, {5, 6, 7}) == std::vector<float>{6, 7, 8});  // a step of another shape
    CHECK(steps.issued == 3);
    CHECK(!steps.recorder.replayed());
    CHECK(steps(dhp::detail::Recording::none, {8, 9}) == std::vector<float>{9, 10});
    CHECK(steps.issued == 4);
    CHECK(steps(where_alike, {0, 1}) == std::vector<float>{1, 2});
    CHECK(steps.issued == 4);
  }

  static void promised_to_all() {
    Steps steps;
    constexpr auto promised = dhp::detail::Recording::promised;
    CHECK(steps(promised, {1, 2}) == std::vector<float>{2, 3});
    CHECK(steps(dhp::detail::Recording::none, {1, 2, 3}) ==
          std::vector<float>{2, 3, 4});  // not a promised step
    CHECK(steps(promised, {3, 4}) == std::vector<float>{4, 5});
    CHECK(message_of([&] {
            steps(promised, {1, 2, 3});
          }).starts_with("step 4: its inputs have other "));

    Steps idle;  // a rank without micro-batches, which records its part of the step
    CHECK(idle(promised, {}).empty());
    CHECK(idle(promised, {}).empty());
    CHECK(idle.issued == 2);
    Steps early;
    early(promised, {1});
    CHECK(message_of([&] {
            early(promised, {1, 2});
          }).starts_with("step 2: its inputs have other "));
  }

 private:
  /// Each step adds 1 to its values. `issued` counts the steps that the host has issued, not replayed.
  struct Steps {
    Dev dev = make_device<Dev>();
    dhp::detail::StepRecorder<Dev> recorder;
    int issued = 0;
    std::uint32_t number = 1;

    std::vector<float> operator()(dhp::detail::Recording how, const std::vector<float>& values) {
      MicroBatch<Dev> batch;
      batch.samples = 1;
      if (!values.empty())
        batch.input =
            Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values);
      std::vector<MicroBatch<Dev>> batches;
      if (batch.input) batches.push_back(batch.share());
      const auto work = [&](const Step<Dev>& step) {
        ++issued;
        if (step.batches.empty()) return Tensor<Dev>();
        const auto in = step.batches[0].input.view();
        Tensor<Dev> out(dev, in.dtype(), in.shape());
        fill(dev, out.mut(), 1);
        axpy(dev, 1, in, out.mut());
        return out;
      };
      const auto losses = recorder.run(
          dev, {.batches = batches, .micro_batches = 1, .context = {.step = number++}}, how, work);
      return losses ? losses.template to_host<float>(dev) : std::vector<float>();
    }
  };
};

}  // namespace tests
