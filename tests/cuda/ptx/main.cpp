// test_ptx TABLE PTX... [-- options of doctest] runs the quick tests of kernels as compiled by nvcc. It writes a line
// for each kernel to TABLE. Without options, every kernel of the files must have run.
#define DOCTEST_CONFIG_IMPLEMENT
#include <tests/cuda/ptx/interpreter.hpp>

#include <doctest/doctest.h>

#include <cstdio>
#include <exception>
#include <string_view>

int main(int count, char** words) try {
  int at = 2;
  for (; at < count && std::string_view(words[at]) != "--"; ++at)
    tests::ptx::interpreter().load(words[at]);
  const int options = std::min(at, count - 1);
  doctest::Context context(count - options, words + options);
  if (at == count) context.addFilter("source-file-exclude", "*_slow.cpp");
  const int status = context.run();
  tests::ptx::interpreter().write_table(words[1]);
  const bool all = tests::ptx::interpreter().all_ran();
  return status != 0 || (at == count && !all) ? 1 : 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "test_ptx: %s\n", error.what());
  return 1;
}
