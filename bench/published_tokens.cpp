// published_tokens MODEL LONGEST: the tokens of each line of standard input, by the tokenizer of a published BERT.
// bench/published.py compares them with those of Hugging Face's tokenizers.
#include <examples/bert/published_tokenizer.hpp>

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "published_tokens MODEL LONGEST\n";
    return 2;
  }
  try {
    const auto tokenizer = examples::load_published_tokenizer(argv[1]);
    const auto longest = static_cast<std::size_t>(std::atoi(argv[2]));
    for (std::string line; std::getline(std::cin, line);) {
      for (const auto id : tokenizer.encode(line, longest)) std::cout << id << ' ';
      std::cout << '\n';
    }
  } catch (const dhp::Error& error) {
    std::cerr << "error: " << error.sentence() << "\n";
    return 1;
  }
}
