// Prints the order in which a run takes its samples, one number a line, for peers that must see the same samples.
#include <bench/program.hpp>
#include <dhp/data/permutation.hpp>

#include <cstdlib>
#include <iostream>

int main(int count, char** arguments) {
  return bench::run_main(count == 4, "sample_order SAMPLES SEED EPOCH", [&] {
    const auto number = [&](int at) { return std::strtoll(arguments[at], nullptr, 10); };
    const dhp::Permutation order(number(1), static_cast<std::uint64_t>(number(2)), number(3));
    for (std::int64_t place = 0; place < order.size(); ++place) std::cout << order(place) << '\n';
  });
}
