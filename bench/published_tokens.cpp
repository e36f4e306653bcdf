// Prints the tokens of each line of standard input: published_tokens MODEL LONGEST uses the tokenizer of a published
// BERT. With "decoder" as LONGEST it uses a byte-level BPE, and each line is JSON. "published_tokens FILE SIZE train"
// writes a tokenizer.json with a vocabulary of a text. bench/published.py and byte_pairs.py compare these tokens with
// those of Hugging Face's tokenizers.
#include <bench/program.hpp>
#include <examples/bert/published_tokenizer.hpp>
#include <examples/gpt/tokenizer_json.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <span>
#include <string>

namespace {

void print_byte_pairs(const std::string& folder) {
  const auto pairs = examples::load_byte_pairs(examples::PublishedJson(folder + "/tokenizer.json"));
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = nlohmann::json::parse(line).get<std::string>();
    const auto ids = pairs.encode(text);
    dhp::check(pairs.decode(ids) == text, "decoded otherwise: ", line);
    for (const auto id : ids) std::cout << id << ' ';
    std::cout << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string last = argc > 2 ? argv[argc - 1] : "";
  constexpr auto usage = "published_tokens MODEL LONGEST|decoder; published_tokens FILE SIZE train";
  return bench::run_main(argc == 3 || last == "train", usage, [&] {
    if (last == "decoder") return print_byte_pairs(argv[1]);
    if (last == "train") {
      const std::vector<std::string> texts{dhp::text_of(argv[1])};
      std::cout << examples::tokenizer_json(examples::train_byte_pairs(texts, std::atoi(argv[2])));
      return;
    }
    const auto tokenizer = examples::load_published_tokenizer(argv[1]);
    const std::int64_t longest = std::atoi(argv[2]);
    std::int64_t were_cut = 0;
    for (std::string line; std::getline(std::cin, line);) {
      const auto tokens = tokenizer.encode(std::span(&line, 1), longest, were_cut);
      for (const auto id : tokens.ids) std::cout << id << ' ';
      std::cout << '\n';
    }
  });
}
