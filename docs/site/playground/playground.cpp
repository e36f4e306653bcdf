// The page's question as text, the library's answer as JSON. Compiled to WebAssembly for the page, and by any compiler
// to a program for the tests:  playground "pipeline=4&micro_batches=16&schedule=1f1b"
// The text is that of the page's address, so a question can be sent as a link.
#include "step_estimate.hpp"

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace playground {

template <class Number>
void read_number(std::string_view key, std::string_view value, Number& into) {
  const std::string text(value);
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  dhp::check(!text.empty() && *end == '\0' && number == number, key, " is a number, not \"", text,
             "\"");
  if constexpr (std::integral<Number>)
    dhp::check(number > -1e9 && number < 1e9 && number == static_cast<int>(number), key,
               " is a whole number below 1e9, not ", text);
  into = static_cast<Number>(number);
}

[[nodiscard]] inline Question parse(std::string_view text) {
  Question q;
  std::string schedule = q.schedule.name();
  while (!text.empty()) {
    const auto end = std::min(text.find('&'), text.size());
    const auto pair = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto equals = pair.find('=');
    dhp::check(equals != pair.npos, "\"", pair, "\" is not of the form key=value");
    const auto key = pair.substr(0, equals), value = pair.substr(equals + 1);
    bool known = key == "schedule";
    if (known) schedule = value;
    Question::visit(q, [&](std::string_view name, auto& into, double, double) {
      if (name != key) return;
      known = true;
      read_number(key, value, into);
    });
    dhp::check(known, "there is no \"", key, "\" to choose");
  }
  q.schedule = dhp::parse_schedule(schedule);
  if (q.schedule.v_shaped()) q.chunks = q.schedule.needed_chunks().value_or(q.chunks);
  return q;
}

[[nodiscard]] inline std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + '"';
}

[[nodiscard]] inline std::string refusal(const dhp::Error& error) {
  return dhp::concat("{\"refused\":", quoted(error.sentence()), "}");
}

[[nodiscard]] inline std::string to_json(const Answer& answer) {
  auto out = dhp::concat("{\"makespan\":", answer.makespan,
                         ",\"max_messages\":", answer.max_messages, ",\"stages\":[");
  for (const auto& stage : answer.stages) {
    if (&stage != answer.stages.data()) out += ',';
    out += dhp::concat(
        "{\"layers\":", stage.layers, ",\"idle\":", stage.idle, ",\"in_flight\":", stage.in_flight,
        ",\"parameters\":", stage.parameters, ",\"memory\":{\"weights\":", stage.memory.weights,
        ",\"gradients\":", stage.memory.gradients, ",\"optimizer\":", stage.memory.optimizer,
        ",\"activations\":", stage.memory.activations, "},\"sent\":{\"data\":", stage.sent.data,
        ",\"tensor\":", stage.sent.tensor, ",\"pipeline\":", stage.sent.pipeline,
        ",\"context\":", stage.sent.context, "},\"actions\":[");
    // Each: kind, chunk, micro-batch, start, duration.
    for (std::size_t at = 0; at < stage.actions.size(); ++at) {
      const auto& action = stage.actions[at];
      out += dhp::concat(at == 0 ? "[" : ",[", quoted(dhp::name_of(action.kind)), ",", action.chunk,
                         ",", action.micro_batch, ",", stage.start[at], ",", stage.cost[at], "]");
    }
    out += "]}";
  }
  out += "],\"schedules\":[";
  for (const char* comma = ""; const auto& schedule : dhp::built_in_schedules())
    out += dhp::concat(std::exchange(comma, ","), "[", quoted(schedule.name()), ",",
                       schedule.needed_chunks().value_or(0), "]");  // 0: any number
  return out + "]}";
}

}  // namespace playground

#ifdef __wasm__

// The text that the page reads; and, written before the answer, the page's question.
namespace {
std::string buffer;
}

extern "C" {

/// Returns memory for a question of this many bytes.
[[clang::export_name("question")]] char* question(unsigned bytes) {
  buffer.assign(bytes, '\0');
  return buffer.data();
}
/// Answers the question. An Error ends the call by a trap (below), and its sentence becomes the answer.
[[clang::export_name("answer")]] void answer() {
  buffer = to_json(playground::estimate(playground::parse(std::string(buffer))));
}
[[clang::export_name("text")]] const char* text() { return buffer.data(); }
[[clang::export_name("text_bytes")]] unsigned text_bytes() {
  return static_cast<unsigned>(buffer.size());
}

// There are no exceptions in this WebAssembly: a throw is the end of the instance. All that is thrown on purpose is an
// Error.
void* __cxa_allocate_exception(std::size_t bytes) noexcept { return std::malloc(bytes); }
[[noreturn]] void __cxa_throw(void* thrown, void*, void* (*)(void*)) {
  buffer = playground::refusal(*static_cast<dhp::Error*>(thrown));
  __builtin_trap();
}

}  // extern "C"

#else

#include <cstdio>

int main(int count, char** arguments) {
  std::string text;
  try {
    text = to_json(playground::estimate(playground::parse(count > 1 ? arguments[1] : "")));
  } catch (const dhp::Error& error) {
    text = playground::refusal(error);
  }
  std::puts(text.c_str());
}

#endif
