#include <examples/doctor/table.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

using namespace examples::doctor;

namespace {

std::size_t widest(const std::string& text) {
  std::istringstream lines(text);
  std::size_t width = 0;
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

}  // namespace

TEST_CASE("table: long lines are broken between words") {
  std::string words;
  for (int word = 0; word < 60; ++word) words += "word ";
  const auto text = wrapped(words, 4);
  CHECK(widest(text) <= table_width);
  CHECK(text.find("\n    word word") != text.npos);
  CHECK(std::count(text.begin(), text.end(), 'w') == 60);
  CHECK(wrapped("short", 4) == "short\n");
  CHECK(widest(wrapped(std::string(400, 'x'), 4)) <= table_width);
}

TEST_CASE("table: figures with least, median and most, and the worst problems last") {
  Finding copies, gemm;
  copies.check = "copies";
  copies.figures = {{"host memory", "GB/s", {10, 2, not_known, 12}}};
  copies.problems = {{Verdict::failed, {1}, "rank 1 is slow " + std::string(200, 'x')}};
  gemm.check = "gemm";
  gemm.summary = "all is well";
  gemm.problems = {{Verdict::warning, {0}, "rank 0 is hot"}};
  const auto text = table_of({copies, gemm, skipped("storage", "nobody asked")}, "4 ranks");
  CHECK(widest(text) <= table_width);
  CHECK(text.starts_with("4 ranks\n"));
  for (const char* part : {"2 (1)", "12 (3)", " 10 ", "storage      skipped  nobody asked",
                           "0 ok, 1 skipped, 1 with warnings, 1 failed"})
    CHECK(text.find(part) != text.npos);
  CHECK(text.find("warning  gemm: rank 0 is hot") < text.find("failed   copies: rank 1 is slow"));
}

TEST_CASE("table: of very many problems some") {
  Finding links;
  links.check = "links";
  for (int rank = 0; rank < 25; ++rank) links.problems.push_back({Verdict::failed, {rank}, "slow"});
  CHECK(table_of({links}, "").find("links: and 15 more") != std::string::npos);
}
