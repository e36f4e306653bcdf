#include <dhp/core/function_ref.hpp>
#include <tests/support/test.hpp>

namespace {

int twice(int value) { return 2 * value; }
std::string call(FunctionRef<std::string(int)> function) { return function(3); }

TEST_CASE("function ref: calls the referenced callable without copying it") {
  int calls = 0;
  const auto counting = [&](int value) {
    ++calls;
    return std::to_string(value);
  };
  CHECK(call(counting) == "3");
  CHECK(call([own = std::string("v")](int value) { return own + std::to_string(value); }) == "v3");
  auto changing = [held = 0](int value) mutable { return std::to_string(held += value); };
  CHECK(call(changing) == "3");
  CHECK(call(changing) == "6");  // it refers to the same object
  CHECK(calls == 1);
  CHECK(FunctionRef<int(int)>(twice)(4) == 8);
  CHECK(FunctionRef<double(int)>(twice)(4) == 8.0);
  static_assert(!std::is_convertible_v<std::string, FunctionRef<int(int)>>);  // for overloads
}

TEST_CASE("function ref: arguments may be changed or moved, and results ignored") {
  int value = 1;
  FunctionRef<void(int&)>([](int& of) { return ++of; })(value);
  CHECK(value == 2);
  const auto take = [](std::unique_ptr<int> owned) { return *owned; };
  CHECK(FunctionRef<int(std::unique_ptr<int>)>(take)(std::make_unique<int>(5)) == 5);
  // A copy of a reference refers to the callable, and not to the reference.
  const FunctionRef<int(int)> first(twice);
  const auto second = first;
  CHECK(second(2) == 4);
}

}  // namespace
