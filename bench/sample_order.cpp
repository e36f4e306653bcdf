// Prints the order in which a run takes its samples, one number a line, for peers that must see the same samples.
// Usage: sample_order SAMPLES SEED EPOCH
#include <dhp/data/permutation.hpp>

#include <cstdlib>
#include <iostream>

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: sample_order SAMPLES SEED EPOCH\n";
    return 2;
  }
  const auto number = [&](int at) { return std::strtoll(arguments[at], nullptr, 10); };
  const dhp::Permutation order(number(1), static_cast<std::uint64_t>(number(2)), number(3));
  for (std::int64_t place = 0; place < order.size(); ++place) std::cout << order(place) << '\n';
}
