// AdamW on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/optim/adamw.hpp>

TEST_CASE("adamw: three steps are PyTorch's, in every precision; biases and norms do not decay") {
  AdamWCases<Cpu>::steps();
}

TEST_CASE("adamw: options out of range are refused") {
  for (const auto& options : {AdamWOptions{.beta1 = 1}, AdamWOptions{.beta2 = -0.1}})
    CHECK(has(message_of([&] { (void)dhp::detail::adam_update(options); }),
              "the betas of Adam lie from 0 to below 1"));
  CHECK(has(message_of([] { (void)dhp::detail::adam_update(AdamWOptions{.weight_decay = NAN}); }),
            "epsilon and weight decay of Adam are 0 or more, got 1e-08 and nan"));
}
