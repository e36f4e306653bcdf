// A program to compare compile times with: it uses a few common parts of the standard library.
#include <algorithm>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

int main(int count, char** arguments) {
  std::map<std::string, std::vector<std::function<double(double)>>> steps;
  std::mt19937 random(7);
  for (int at = 1; at < count; ++at) {
    std::normal_distribution<double> by(at, 1);
    steps[arguments[at]].push_back([by = by(random)](double value) { return value + by; });
  }
  std::vector<std::future<double>> results;
  for (const auto& entry : steps)
    results.push_back(std::async([&list = entry.second] {
      double value = 0;
      for (const auto& step : list) value = step(value);
      return value;
    }));
  std::vector<double> values;
  for (auto& result : results) values.push_back(result.get());
  std::sort(values.begin(), values.end());
  for (const double value : values) std::cout << value << '\n';
}
