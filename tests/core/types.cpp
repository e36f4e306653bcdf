// 16-bit types: conversions of every value in both directions, rounding to nearest even, infinities and NaN.
#include <dhp/core/types.hpp>
#include <tests/support/test.hpp>

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

template <class T>
T from_bits(unsigned bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

TEST_CASE_TEMPLATE("types: all 65,536 values survive float, NaN as NaN", T, bf16, f16) {
  int wrong = 0;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto value = from_bits<T>(bits);
    const float wide = value;
    const T back(wide);
    wrong += std::isnan(wide) ? !std::isnan(static_cast<float>(back)) : back.bits != bits;
  }
  CHECK(wrong == 0);
}

// A double may be so close to the middle of two T that its nearest float is this middle.
TEST_CASE_TEMPLATE("types: a float or a double is rounded once, to nearest even", T, bf16, f16) {
  const unsigned infinite = T(infinity).bits;
  int wrong = 0;
  for (unsigned bits = 0; bits < infinite; ++bits) {
    const double low = from_bits<T>(bits);
    // For the largest finite value, `high` is the next power of two, which rounds to infinity.
    const double high = bits + 1 < infinite ? double{from_bits<T>(bits + 1)}
                                            : 2 * low - double{from_bits<T>(bits - 1)};
    const double middle = low + (high - low) / 2;
    for (const bool negative : {false, true}) {
      const unsigned sign = negative ? 0x8000 : 0;
      const auto becomes = [&](double value, unsigned wanted) {
        const double signed_value = negative ? -value : value;
        wrong += T(signed_value).bits != (sign | wanted);
        const auto single = static_cast<float>(signed_value);
        if (single == signed_value) wrong += T(single).bits != (sign | wanted);
      };
      becomes(low, bits);
      becomes(middle, bits % 2 == 0 ? bits : bits + 1);
      for (double part = (high - low) / 2; middle + part != middle; part /= 2) {
        becomes(middle - part, bits);
        becomes(middle + part, bits + 1);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("types: overflow gives infinity, underflow a zero with its sign") {
  CHECK(bf16(1e-300).bits == 0);
  CHECK(f16(-1e-300).bits == 0x8000);
  CHECK(f16(-1e-30f).bits == 0x8000);
  CHECK(bf16(-0.0f).bits == 0x8000);
  CHECK(static_cast<float>(f16(-1e30f)) == -infinity);
  CHECK(static_cast<float>(bf16(-infinity)) == -infinity);
  for (const double huge : {0x1p128, 1e300, std::numeric_limits<double>::infinity()}) {
    CHECK(static_cast<float>(bf16(huge)) == infinity);
    CHECK(static_cast<float>(f16(-huge)) == -infinity);
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(static_cast<float>(bf16(nan))));
  CHECK(std::isnan(static_cast<float>(f16(nan))));
  static_assert(f16(1 + 0x1p-11 + 0x1p-40).bits == 0x3c01);
}

TEST_CASE("types: NaN stays NaN and keeps its sign, for any payload") {
  for (const std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
    CAPTURE(bits);
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
      const auto value = std::bit_cast<float>(sign | bits);
      CHECK(std::isnan(static_cast<float>(bf16(value))));
      CHECK(std::isnan(static_cast<float>(f16(value))));
      CHECK((bf16(value).bits & 0x8000u) == sign >> 16);
      CHECK((f16(value).bits & 0x8000u) == sign >> 16);
    }
  }
}

TEST_CASE("types: sizes, names and accumulation types are right") {
  for (const auto type :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    visit_any(type, [&]<class T>(TypeTag<T>) {
      CHECK(dtype_of<T>() == type);
      CHECK(sizeof(T) == size_of(type));
    });
    CHECK(is_floating(type) == (name_of(type)[0] == 'f' || name_of(type)[0] == 'b'));
  }
  CHECK(accumulation_type(DType::f64) == DType::f64);
  for (const auto type : {DType::f32, DType::bf16, DType::f16})
    CHECK(accumulation_type(type) == DType::f32);
  CHECK_THROWS_WITH_AS(visit_floating(DType::i32, [](auto) {}),
                       Contains("expected a floating-point tensor, got i32"), Error);
  CHECK_THROWS_WITH_AS(detail::visit_accumulator(DType::bf16, [](auto) {}),
                       Contains("f64 or f32), got bf16"), Error);
}

}  // namespace
