// Parses the PTX that nvcc writes: one statement or label on a line; calls span several lines.
#include <dhp/core/error.hpp>
#include <tests/cuda/ptx/kernel.hpp>
#include <tests/cuda/ptx/races.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>

namespace tests::ptx {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts{""};
  int depth = 0;
  for (const char letter : text) {
    depth += (letter == '{' || letter == '[' || letter == '(') -
             (letter == '}' || letter == ']' || letter == ')');
    if (letter == separator && depth == 0) parts.emplace_back();
    else if (std::isspace(static_cast<unsigned char>(letter)) == 0) parts.back() += letter;
  }
  return parts;
}
/// Removes the brackets.
std::string_view inside(std::string_view text) { return text.substr(1, text.size() - 2); }
std::string_view trimmed(std::string_view text) {
  constexpr const char* blank = " \t\n";
  const auto first = text.find_first_not_of(blank);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(blank) + 1 - first);
}

/// One statement: [@guard] opcode operands.
struct Statement {
  explicit Statement(std::string_view text) {
    if (text[0] == '@') {
      const auto end = text.find_first_of(" \t");
      guard = text.substr(1, end - 1);
      text = trimmed(text.substr(end));
    }
    const auto end = text.find_first_of(" \t\n");
    opcode = text.substr(0, end);
    words = split(opcode, '.');
    if (end != text.npos) operands = split(text.substr(end), ',');
  }
  [[nodiscard]] bool has(std::string_view word) const {
    return std::find(words.begin() + 1, words.end(), word) != words.end();
  }
  /// Returns the bytes of the element type, which is the last word.
  [[nodiscard]] int size() const { return std::stoi(words.back().substr(1)) / 8; }

  std::string guard, opcode;
  std::vector<std::string> words, operands;
};

/// The body of one kernel.
class Body {
 public:
  explicit Body(Kernel& kernel) : kernel_(kernel) {}

  /// Parses .loc FILE LINE COLUMN[, function_name NAME, inlined_at FILE LINE COLUMN].
  void place(std::istringstream text) {
    std::string word;
    text >> word >> now_.file[0] >> now_.line[0];
    while (text >> word && word != "inlined_at") {}
    if (!(text >> now_.file[1] >> now_.line[1])) now_.file[1] = now_.line[1] = 0;
  }
  void label(const std::string& name) { labels_[name] = static_cast<int>(kernel_.code.size()); }
  void statement(const Statement& text) {
    auto next = now_;
    if (!text.guard.empty()) {
      next.guard_value = text.guard[0] != '!';
      next.guard = named(text.guard.substr(next.guard_value ? 0 : 1));
    }
    const auto& name = text.words[0];
    if (name == "bra") {
      next.kind = Kind::branch;
      jumps_.emplace_back(kernel_.code.size(), text.operands[0]);
    } else if (name == "ret") {
      next.kind = Kind::exit;
    } else if (name == "bar" || name == "barrier") {
      next.kind = Kind::barrier;
    } else if (name == "shfl") {
      shuffle(next, text);
    } else if (name == "ldmatrix") {
      matrices(next, text);
    } else if (name == "mma") {
      product(next, text);
    } else if (name == "ld" || name == "st") {
      memory(next, text);
    } else {
      operation(next, text);
    }
    kernel_.code.push_back(next);
  }
  void end() {
    for (const auto& [at, label] : jumps_) kernel_.code[at].target = labels_.at(label);
    kernel_.code.push_back({.kind = Kind::exit});
  }

 private:
  /// Returns the register with this name.
  int named(const std::string& name) {
    static const std::map<std::string, int> fixed_names{{"%tid.x", thread},  {"%ntid.x", threads},
                                                        {"%ctaid.x", block}, {"%nctaid.x", blocks},
                                                        {"%carry", carry},   {"_", unused}};
    if (const auto found = fixed_names.find(name); found != fixed_names.end()) return found->second;
    if (name.find("_param_0") != name.npos) return arguments;
    if (name.rfind("__local_depot", 0) == 0) return local;
    if (name.find("shared_memory") != name.npos) return shared;
    const auto [found, fresh] = names_.emplace(name, kernel_.registers);
    if (fresh) ++kernel_.registers;
    return found->second;
  }
  int operand(const std::string& text) {
    const bool number = std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-';
    if (!number) return named(text);
    const bool is_float = text[0] == '0' && (text[1] == 'f' || text[1] == 'd');
    const auto constant = is_float         ? std::stoull(text.substr(2), nullptr, 16)
                          : text[0] == '-' ? static_cast<Bits>(std::stoll(text, nullptr, 0))
                                           : std::stoull(text, nullptr, 0);
    const auto names_before = names_.size();
    const int found = named(text);
    if (names_.size() > names_before) kernel_.constants.emplace_back(found, constant);
    return found;
  }
  template <std::size_t most, class Read>
  static int fill(std::array<int, most>& places, const std::vector<std::string>& texts,
                  const Read& read) {
    dhp::check(texts.size() <= places.size(), "there are ", texts.size(), " operands");
    for (std::size_t at = 0; at < texts.size(); ++at) places[at] = read(texts[at]);
    return static_cast<int>(texts.size());
  }
  int sources(Instruction& next, const std::vector<std::string>& texts) {
    return fill(next.from, texts, [&](const auto& text) { return operand(text); });
  }
  int results(Instruction& next, const std::vector<std::string>& texts) {
    return fill(next.to, texts, [&](const auto& text) { return named(text); });
  }
  static std::vector<std::string> elements(const std::string& text) {
    return text[0] == '{' ? split(inside(text), ',') : std::vector{text};
  }

  void shuffle(Instruction& next, const Statement& text) {
    dhp::check(text.has("bfly"), "the interpreter does not know ", text.opcode);
    next.kind = Kind::shuffle;
    next.to = {unused, unused};
    results(next, split(text.operands[0], '|'));
    sources(next, {text.operands.begin() + 1, text.operands.end()});
  }
  void matrices(Instruction& next, const Statement& text) {
    next.transposes = text.has("trans");
    dhp::check(text.opcode == (next.transposes ? "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
                                               : "ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
               "the interpreter does not know ", text.opcode);
    next.kind = Kind::matrices;
    next.space = Space::shared;
    results(next, elements(text.operands[0]));
    next.address = operand(std::string(inside(text.operands[1])));
  }
  void product(Instruction& next, const Statement& text) {
    next.kind = Kind::product;
    next.operation = operation_named(text.opcode);
    results(next, elements(text.operands[0]));
    std::vector<std::string> all;
    for (std::size_t at = 1; at < text.operands.size(); ++at)
      for (const auto& one : elements(text.operands[at])) all.push_back(one);
    sources(next, all);
  }
  void memory(Instruction& next, const Statement& text) {
    const bool loads = text.words[0] == "ld";
    const auto& values = text.operands[loads ? 0 : 1];
    const auto place = split(inside(text.operands[loads ? 1 : 0]), '+');
    // Arguments and results of functions are registers.
    if (text.has("param") &&
        (place[0].rfind("param", 0) == 0 || place[0].rfind("retval", 0) == 0)) {
      next.operation = operation_named("mov.b64");
      next.to[0] = named(loads ? values : place[0]);
      next.from[0] = operand(loads ? place[0] : values);
      return;
    }
    next.kind = loads ? Kind::load : Kind::store;
    next.space = text.has("global")   ? Space::global
                 : text.has("shared") ? Space::shared
                 : text.has("local")  ? Space::local
                 : text.has("param")  ? Space::arguments
                                      : Space::generic;
    next.bytes = static_cast<std::uint8_t>(text.size());
    next.extends_sign = text.words.back()[0] == 's';
    next.count = static_cast<std::uint8_t>(loads ? results(next, elements(values))
                                                 : sources(next, elements(values)));
    next.address = operand(place[0]);
    if (place.size() > 1) next.offset = std::stoll(place[1], nullptr, 0);
  }
  void operation(Instruction& next, const Statement& text) {
    const auto& name = text.words[0];
    auto operands = text.operands;
    std::string opcode = name;
    // These words change nothing here: default rounding, lower half, uniform execution.
    static const std::set<std::string> silent{"rn", "lo", "uni", "to", "global", "local", "param"};
    for (std::size_t at = 1; at < text.words.size(); ++at)
      if (!silent.contains(text.words[at])) opcode += "." + text.words[at];
    if (name == "call") {  // (result), function, (arguments)
      opcode = "call." + operands[1];
      auto inputs = split(inside(operands[2]), ',');
      inputs.insert(inputs.begin(), std::string(inside(operands[0])));
      operands = inputs;
    } else if (name == "mov" && (operands[0][0] == '{' || operands[1][0] == '{')) {
      const bool packs = operands[1][0] == '{';
      const auto parts = elements(operands[packs ? 1 : 0]);
      opcode = (packs ? "pack." : "unpack.") + std::to_string(parts.size()) + ".b" +
               std::to_string(8 * text.size());
      next.operation = operation_named(opcode);
      results(next, elements(operands[0]));
      sources(next, elements(operands[1]));
      return;
    } else if (name == "addc" || name == "subc" || text.has("cc")) {
      const bool takes = name.back() == 'c';
      opcode = name.substr(0, 3) + ".cc.b" + std::to_string(8 * text.size());
      next.to[1] = text.has("cc") ? carry : unused;
      operands.push_back(takes ? "%carry" : "0");
    }
    next.operation = operation_named(opcode);
    next.to[0] = named(operands[0]);
    sources(next, {operands.begin() + 1, operands.end()});
  }

  Kernel& kernel_;
  Instruction now_;
  std::map<std::string, int> names_, labels_;
  std::vector<std::pair<std::size_t, std::string>> jumps_;
};

}  // namespace

std::vector<Kernel> parse(std::istream& ptx) {
  std::vector<Kernel> kernels;
  const auto files = std::make_shared<std::vector<std::string>>();
  std::string line, pending;
  int number = 0;
  const auto next_line = [&] {
    ++number;
    if (!std::getline(ptx, line)) return false;
    if (const auto comment = line.find("//"); comment != line.npos) line.resize(comment);
    return true;
  };
  const auto number_behind = [&](const std::string& word) {
    return std::stoi(line.substr(line.find(word) + word.size()));
  };
  try {
    while (next_line()) {
      if (trimmed(line).rfind(".file", 0) == 0) {
        const auto words = split(trimmed(line).substr(5), '"');
        const auto at = static_cast<std::size_t>(std::stoi(words[0]));
        files->resize(std::max(files->size(), at + 1));
        (*files)[at] = words[1].substr(words[1].rfind('/') + 1);
      }
      const auto entry = line.find(".entry ");
      if (entry == line.npos) continue;
      const auto mangled = trimmed(line).substr(trimmed(line).find(".entry ") + 7);
      Kernel kernel{
          .name = demangled(std::string(mangled.substr(0, mangled.find_first_of("( "))).c_str()),
          .files = files};
      while (next_line() && line[0] != '{') {
        if (line.find(".param") != line.npos) {
          kernel.argument_alignment = static_cast<std::size_t>(number_behind(".align"));
          kernel.argument_bytes = static_cast<std::size_t>(number_behind("["));
        }
        if (line.find(".maxntid") != line.npos) kernel.max_threads = number_behind(".maxntid");
      }
      Body body(kernel);
      while (next_line() && line[0] != '}') {
        auto text = trimmed(line);
        while (!text.empty() && pending.empty() && (text[0] == '{' || text[0] == '}'))
          text = trimmed(text.substr(1));
        if (text.empty()) continue;
        if (text[0] == '.') {
          if (text.rfind(".local", 0) == 0)
            kernel.local_bytes = static_cast<std::size_t>(number_behind("["));
          else if (text.rfind(".loc", 0) == 0) body.place(std::istringstream(line));
          continue;
        }
        if (text.back() == ':') {
          body.label(std::string(text.substr(0, text.size() - 1)));
          continue;
        }
        pending += std::string(text) + "\n";
        for (auto end = pending.find(';'); end != pending.npos; end = pending.find(';')) {
          body.statement(Statement(trimmed(std::string_view(pending).substr(0, end))));
          pending = trimmed(pending.substr(end + 1));
        }
      }
      body.end();
      kernels.push_back(std::move(kernel));
    }
  } catch (const std::exception& error) {
    dhp::fail("PTX line ", number, ", ", line, ": ", error.what());
  }
  return kernels;
}

}  // namespace tests::ptx
