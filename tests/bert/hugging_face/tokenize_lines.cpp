// tokenize_lines VOCAB < LINES: for each line its words, apart by U+001F, a tab, and its ids. What
// compare.py holds against Hugging Face's tokenizer.
#include <examples/bert/wordpiece.hpp>

#include <cstdio>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const examples::BasicTokenizer basic{.lower_case = argc == 2};
  const examples::WordPiece pieces(examples::load_vocabulary(argv[1]), basic);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string out;
    for (const auto& word : basic.words(line)) out += (out.empty() ? "" : "\x1f") + word;
    out += '\t';
    for (const auto id : pieces.encode(line)) out += std::to_string(id) + ' ';
    std::puts(out.c_str());
  }
}
