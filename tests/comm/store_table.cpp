// Keys and values in memory: limits, lists, and requests that make no sense.
#include <dhp/comm/store_table.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <random>

namespace {

using namespace tests;

std::string fields(std::initializer_list<std::string> texts) {
  std::string bytes;
  for (const auto& text : texts) append_field(bytes, text);
  return bytes;
}

TEST_CASE("store table: no more keys and bytes than the limits") {
  StoreTable table({.keys = 3, .bytes = 100});
  table.set("a", "1");
  table.set("b", "2");
  table.set("c", "3");
  CHECK(message_of([&] { table.set("d", "4"); }) ==
        "the store has 3 keys, and takes no more; remove some before \"d\" is set");
  table.set("a", std::string(95, 'x'));  // 100 bytes with keys
  CHECK(message_of([&] { table.set("b", "22"); }) ==
        "the store keeps at most 100 bytes; remove some before \"b\" is set");
  CHECK(table.find("b").value() == "2");
  table.remove("a");
  table.remove("a");
  table.set("d", std::string(95, 'y'));
  CHECK(message_of([&] { table.set("d", std::string(96, 'y')); }) != "no error");
  CHECK(table.find("d").value() == std::string(95, 'y'));
}

TEST_CASE("store table: lists begin after a key and end with what fits") {
  StoreTable table({});
  for (const auto* const key : {"a", "b/1", "b/2", "b/3", "c"}) table.set(key, "12345");
  const auto [all, more] = table.list("b/", "");
  CHECK(all.size() == 3);
  CHECK(!more);
  const auto [some, rest] = table.list("b/", "", 40);  // 16 bytes each
  CHECK(some.size() == 2);
  CHECK(rest);
  const auto [last, none] = table.list("b/", "b/2", 40);
  CHECK(last == Store::Entries{{"b/3", "12345"}});
  CHECK(!none);
  CHECK(table.list("b/", "b/3").first.empty());
  CHECK(table.list("", "").first.size() == 5);
}

TEST_CASE("store table: requests are answered, and what is none is not") {
  StoreTable table({.keys = 1});
  const auto answer = [&](std::uint8_t type, std::string payload) {
    return table.answer(Frame{type, std::move(payload)});
  };
  CHECK(answer(store_request::find, fields({"k"}))->type == store_answer::none);
  CHECK(answer(store_request::set, fields({"k", "v"}))->type == store_answer::done);
  CHECK(answer(store_request::find, fields({"k"}))->payload == "v");
  const auto full = answer(store_request::set, fields({"l", "v"}));
  CHECK(full->type == store_answer::failed);
  CHECK(full->payload.find("takes no more") != std::string::npos);
  CHECK(answer(store_request::list, fields({"", ""}))->type == store_answer::entries);
  CHECK(answer(store_request::remove, fields({"k"}))->type == store_answer::done);
  CHECK(!table.find("k"));
  CHECK(!answer(99, fields({"k"})));
  CHECK(!answer(store_request::set, fields({"k"})));
  CHECK(!answer(store_request::set, fields({"", "v"})));
  CHECK(!answer(store_request::set, fields({"k", "v"}) + "x"));
  CHECK(!answer(store_request::set, fields({std::string(257, 'k'), "v"})));
  CHECK(!answer(store_request::set, fields({"k", std::string((1 << 20) + 1, 'v')})));
  CHECK(!answer(store_request::find, "k"));
  std::mt19937_64 random(1);
  int answered = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string payload(random() % 24, '\0');
    for (auto& byte : payload) byte = static_cast<char>(random() % 3 == 0 ? random() : 0);
    answered += answer(static_cast<std::uint8_t>(16 + random() % 5), payload).has_value();
  }
  CHECK(answered > 0);
}

}  // namespace
