// The arithmetic of instructions. Each is a function of one thread's operands, which the compiler loops over a warp.
#include <dhp/core/types.hpp>
#include <tests/cuda/ptx/kernel.hpp>

#include <bit>
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <type_traits>

namespace tests::ptx {
namespace {

using dhp::bf16, dhp::f16;
__extension__ using Unsigned128 = unsigned __int128;

/// Reads a register of 16, 32 or 64 bits as type T; PTX registers have no types.
template <class T>
T value(Bits bits) {
  if constexpr (std::is_same_v<T, bool>) return bits != 0;
  else if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(std::uint32_t(bits));
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  else return static_cast<T>(bits);
}
template <class T>
Bits bits(T value) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<std::uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<Bits>(value);
  else return static_cast<Bits>(value);  // extends the sign
}

void each(Mask mask, const auto& body) {
  if (mask == whole_warp) {
#pragma GCC ivdep
    for (int lane = 0; lane < lanes; ++lane) body(static_cast<std::size_t>(lane));
  } else {
    for (; mask != 0; mask &= mask - 1) body(static_cast<std::size_t>(std::countr_zero(mask)));
  }
}

/// Makes an operation of a lambda without captures, whose parameter types say how to read registers.
template <class F, class R, class... A>
Operation of(F, R (F::*)(A...) const) {
  return [](Register* registers, const Instruction& instruction, Mask mask) {
    [&]<std::size_t... at>(std::index_sequence<at...>) {
      auto& to = registers[instruction.to[0]];
      const std::array from{&registers[instruction.from[at]]...};
      each(mask,
           [&](std::size_t lane) { to[lane] = bits<R>(F()(value<A>((*from[at])[lane])...)); });
    }
    (std::index_sequence_for<A...>());
  };
}
template <class F>
Operation of(F f) {
  return of(f, &F::operator());
}

using Table = std::map<std::string, Operation, std::less<>>;

template <class T>
void compare(Table& table, const std::string& name) {
  const auto add = [&](const char* relation, auto f) {
    table["setp." + (relation + name)] = of(f);
  };
  add("eq", [](T a, T b) { return a == b; });
  add("ne", [](T a, T b) { return a < b || a > b; });
  add("lt", [](T a, T b) { return a < b; });
  add("le", [](T a, T b) { return a <= b; });
  add("gt", [](T a, T b) { return a > b; });
  add("ge", [](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {  // true for NaN
    add("equ", [](T a, T b) { return !(a < b || a > b); });
    add("neu", [](T a, T b) { return !(a == b); });
    add("ltu", [](T a, T b) { return !(a >= b); });
    add("leu", [](T a, T b) { return !(a > b); });
    add("gtu", [](T a, T b) { return !(a <= b); });
    add("geu", [](T a, T b) { return !(a < b); });
    add("num", [](T a, T b) { return a == a && b == b; });
    add("nan", [](T a, T b) { return a != a || b != b; });
  }
}

void check_divisor(auto b) { dhp::check(b != 0, "it divides by 0"); }

template <class T>
void integers(Table& table, const std::string& name) {
  compare<T>(table, name);
  // Computed in 64 bits, so that nothing overflows.
  table["add" + name] = of([](T a, T b) { return T(Bits(a) + Bits(b)); });
  table["sub" + name] = of([](T a, T b) { return T(Bits(a) - Bits(b)); });
  table["mul" + name] = of([](T a, T b) { return T(Bits(a) * Bits(b)); });
  table["mad" + name] = of([](T a, T b, T c) { return T(Bits(a) * Bits(b) + Bits(c)); });
  table["min" + name] = of([](T a, T b) { return b < a ? b : a; });
  table["max" + name] = of([](T a, T b) { return a < b ? b : a; });
  table["div" + name] = of([](T a, T b) {
    check_divisor(b);
    return std::is_signed_v<T> && b == T(-1) ? T(Bits{0} - Bits(a)) : T(a / b);
  });
  table["rem" + name] = of([](T a, T b) {
    check_divisor(b);
    return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
  });
  table["shr" + name] = of([](T a, std::uint32_t by) {
    constexpr std::uint32_t size = sizeof(T) * 8;
    return by < size ? T(a >> by) : a < 0 ? T(-1) : T(0);
  });
  if constexpr (std::is_signed_v<T>) {
    table["neg" + name] = of([](T a) { return T(Bits{0} - Bits(a)); });
    table["abs" + name] = of([](T a) { return a < 0 ? T(Bits{0} - Bits(a)) : a; });
  }
  if constexpr (sizeof(T) < 8) {
    using Twice =
        std::conditional_t<std::is_signed_v<T>,
                           std::conditional_t<sizeof(T) == 4, std::int64_t, std::int32_t>,
                           std::conditional_t<sizeof(T) == 4, std::uint64_t, std::uint32_t>>;
    table["mul.wide" + name] = of([](T a, T b) { return Twice(Bits(a) * Bits(b)); });
  }
}

template <class T>
void words(Table& table, const std::string& name) {
  table["and" + name] = of([](T a, T b) { return T(a & b); });
  table["or" + name] = of([](T a, T b) { return T(a | b); });
  table["xor" + name] = of([](T a, T b) { return T(a ^ b); });
  if constexpr (std::is_same_v<T, bool>) {
    table["not" + name] = of([](T a) { return !a; });
  } else {
    constexpr std::uint32_t size = sizeof(T) * 8;
    compare<T>(table, name);
    table["not" + name] = of([](T a) { return T(~a); });
    table["shl" + name] = of([](T a, std::uint32_t by) { return by < size ? T(a << by) : T(0); });
    table["shr" + name] = of([](T a, std::uint32_t by) { return by < size ? T(a >> by) : T(0); });
    table["clz" + name] = of([](T a) { return std::countl_zero(a); });
    table["bfi" + name] = of([](T a, T b, std::uint32_t first, std::uint32_t count) {
      const T ones = count >= size ? T(~T(0)) : T((T(1) << count) - 1);
      return first >= size ? b : T((b & ~T(ones << first)) | T((a & ones) << first));
    });
  }
  table["selp" + name] = of([](T a, T b, bool first) { return first ? a : b; });
  table["mov" + name] = of([](T a) { return a; });
}

template <class T>
void floats(Table& table, const std::string& name) {
  using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, Bits>;
  compare<T>(table, name);
  table["add" + name] = of([](T a, T b) { return a + b; });
  table["sub" + name] = of([](T a, T b) { return a - b; });
  table["mul" + name] = of([](T a, T b) { return a * b; });
  table["fma" + name] = of([](T a, T b, T c) { return std::fma(a, b, c); });
  table["fma.rm" + name] = of([](T a, T b, T c) {
    const volatile T x = a, y = b, z = c;
    std::fesetround(FE_DOWNWARD);
    const volatile T sum = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    return T(sum);
  });
  table["div" + name] = of([](T a, T b) { return a / b; });
  table["rcp" + name] = of([](T a) { return 1 / a; });
  table["sqrt" + name] = of([](T a) { return std::sqrt(a); });
  table["neg" + name] = of([](T a) { return -a; });
  table["abs" + name] = of([](T a) { return std::abs(a); });
  table["min" + name] = of([](T a, T b) { return std::fmin(a, b); });
  table["max" + name] = of([](T a, T b) { return std::fmax(a, b); });
  table["copysign" + name] = of([](T sign, T size) { return std::copysign(size, sign); });
  table["selp" + name] = of([](T a, T b, bool first) { return first ? a : b; });
  table["mov" + name] = of([](Word a) { return a; });
}

/// Sets subnormal numbers to 0.
template <class T>
T flushed(T a) {
  return std::abs(a) < std::numeric_limits<T>::min() ? std::copysign(T(0), a) : a;
}
/// Returns the bits of x, rounded to a 16-bit type; a GPU makes each NaN the same.
template <class T>
std::uint16_t narrowed(float x) {
  return x != x ? std::uint16_t{0x7fff} : T(x).bits;
}
template <class T>
float widened(std::uint16_t bits) {
  T value;
  value.bits = bits;
  return value;
}
/// Joins two rounded numbers.
template <class T>
std::uint32_t pair(float high, float low) {
  return std::uint32_t{narrowed<T>(high)} << 16 | narrowed<T>(low);
}

/// Calls visit(any number of a type, the type's name).
void for_integers(const auto& visit) {
  visit(std::int8_t(), ".s8");
  visit(std::uint8_t(), ".u8");
  visit(std::int16_t(), ".s16");
  visit(std::uint16_t(), ".u16");
  visit(std::int32_t(), ".s32");
  visit(std::uint32_t(), ".u32");
  visit(std::int64_t(), ".s64");
  visit(std::uint64_t(), ".u64");
}

template <class From>
void conversions(Table& table, const std::string& from) {
  if constexpr (std::is_integral_v<From>)
    for_integers([&]<class To>(To, const std::string& to) {
      table["cvt" + to + from] = of([](From a) { return static_cast<To>(a); });
    });
  table["cvt.f32" + from] = of([](From a) { return static_cast<float>(a); });
  table["cvt.f64" + from] = of([](From a) { return static_cast<double>(a); });
  if constexpr (std::is_floating_point_v<From>) {
    table["cvt.rzi" + from + from] = of([](From a) { return std::trunc(a); });
    table["cvt.rmi" + from + from] = of([](From a) { return std::floor(a); });
    table["cvt.rni" + from + from] = of([](From a) { return std::nearbyint(a); });
    table["cvt.rzi.s64" + from] = of([](From a) {
      return std::abs(a) < From(0x1p63) ? static_cast<std::int64_t>(a)
             : a > 0                    ? std::numeric_limits<std::int64_t>::max()
                                        : std::numeric_limits<std::int64_t>::min();
    });
    table["cvt.sat" + from + from] =
        of([](From a) { return std::fmin(std::fmax(a, From(0)), From(1)); });
  }
}

/// A sum or difference of T. Reads a carry in `from[2]` and writes the new carry to `to[1]`.
template <class T, bool subtracts>
void with_carry(Register* registers, const Instruction& instruction, Mask mask) {
  const auto [a, b, c] = std::array{instruction.from[0], instruction.from[1], instruction.from[2]};
  each(mask, [&](std::size_t lane) {
    using Wide = Unsigned128;
    const Wide first = value<T>(registers[a][lane]);
    const Wide second = Wide(value<T>(registers[b][lane])) + registers[c][lane];
    const bool carries = subtracts ? first < second : (first + second) >> (8 * sizeof(T)) != 0;
    registers[instruction.to[0]][lane] = T(subtracts ? first - second : first + second);
    registers[instruction.to[1]][lane] = carries;
  });
}

/// Joins `count` registers into one of `size` bits, or splits it.
template <int size, int count>
void pack(Register* registers, const Instruction& instruction, Mask mask) {
  constexpr int part = size / count;
  each(mask, [&](std::size_t lane) {
    Bits all = 0;
    for (std::size_t at = 0; at < count; ++at)
      all |= (registers[instruction.from[at]][lane] & ((Bits{1} << part) - 1)) << (part * at);
    registers[instruction.to[0]][lane] = all;
  });
}
template <int size, int count>
void unpack(Register* registers, const Instruction& instruction, Mask mask) {
  constexpr int part = size / count;
  each(mask, [&](std::size_t lane) {
    const Bits all = registers[instruction.from[0]][lane];
    for (std::size_t at = 0; at < count; ++at)
      registers[instruction.to[at]][lane] = all >> (part * at) & ((Bits{1} << part) - 1);
  });
}

/// mma.m16n8k16: a (16 x 16) is in from[0..3], b (16 x 8) in from[4..5], c (16 x 8) in from[6..9], as in PTX's manual.
template <class T>
void product(Register* registers, const Instruction& instruction, Mask) {
  double a[16][16], b[16][8];
  const auto element = [](Bits word, std::size_t half) -> double {
    return widened<T>(static_cast<std::uint16_t>(word >> 16 * half));
  };
  for (std::size_t lane = 0; lane < lanes; ++lane)
    for (std::size_t half = 0; half < 2; ++half) {
      const auto group = lane / 4, pair = lane % 4 * 2 + half;
      for (std::size_t word = 0; word < 4; ++word)
        a[group + word % 2 * 8][pair + word / 2 * 8] =
            element(registers[instruction.from[word]][lane], half);
      for (std::size_t word = 0; word < 2; ++word)
        b[pair + 8 * word][group] = element(registers[instruction.from[4 + word]][lane], half);
    }
  for (std::size_t lane = 0; lane < lanes; ++lane)
    for (std::size_t number = 0; number < 4; ++number) {
      const auto row = lane / 4 + number / 2 * 8, column = lane % 4 * 2 + number % 2;
      double sum = value<float>(registers[instruction.from[6 + number]][lane]);
      for (std::size_t k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      registers[instruction.to[number]][lane] = bits(static_cast<float>(sum));
    }
}

Table all_operations() {
  Table table;
  for_integers([&]<class T>(T, const std::string& name) {
    if constexpr (sizeof(T) > 1) integers<T>(table, name);
    conversions<T>(table, name);
  });
  words<bool>(table, ".pred");
  words<std::uint16_t>(table, ".b16");
  words<std::uint32_t>(table, ".b32");
  words<std::uint64_t>(table, ".b64");
  for (const char* size : {"16", "32", "64"})  // the same for signed and unsigned
    for (const char* opcode : {"mov", "selp"})
      for (const char* type : {".u", ".s"})
        table[opcode + std::string(type) + size] = table.at(opcode + std::string(".b") + size);
  for (const char* space : {"", ".shared"})
    table["cvta" + std::string(space) + ".u64"] = table.at("mov.b64");
  floats<float>(table, ".f32");
  floats<double>(table, ".f64");
  conversions<float>(table, ".f32");
  conversions<double>(table, ".f64");
  table["cvt.f32.f16"] = of([](std::uint16_t a) { return widened<f16>(a); });
  table["cvt.f16.f32"] = of([](float a) { return narrowed<f16>(a); });
  table["cvt.bf16.f32"] = of([](float a) { return narrowed<bf16>(a); });
  table["cvt.rz.bf16.f32"] =
      of([](float a) { return std::uint16_t(std::bit_cast<std::uint32_t>(a) >> 16); });
  table["cvt.f16x2.f32"] = of([](float high, float low) { return pair<f16>(high, low); });
  table["cvt.bf16x2.f32"] = of([](float high, float low) { return pair<bf16>(high, low); });
  table["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"] = &product<bf16>;
  table["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] = &product<f16>;
  table["ex2.approx.ftz.f32"] = of([](float a) { return flushed(std::exp2(flushed(a))); });
  table["rcp.approx.ftz.f32"] = of([](float a) { return 1 / flushed(a); });
  table["rcp.approx.ftz.f64"] = of([](double a) {  // only the upper half is exact
    return std::bit_cast<Bits>(1 / flushed(a)) >> 32 << 32;
  });
  table["shf.l.wrap.b32"] = of([](std::uint32_t low, std::uint32_t high, std::uint32_t by) {
    return std::uint32_t((Bits{high} << 32 | low) << (by & 31) >> 32);
  });
  // CUDA's own function, which is not interpreted.
  table["call.__internal_accurate_pow"] = of([](double a, double b) { return std::pow(a, b); });
  table["add.cc.b32"] = &with_carry<std::uint32_t, false>;
  table["sub.cc.b32"] = &with_carry<std::uint32_t, true>;
  table["add.cc.b64"] = &with_carry<std::uint64_t, false>;
  table["sub.cc.b64"] = &with_carry<std::uint64_t, true>;
  table["pack.2.b32"] = &pack<32, 2>;
  table["pack.2.b64"] = &pack<64, 2>;
  table["pack.4.b64"] = &pack<64, 4>;
  table["unpack.2.b32"] = &unpack<32, 2>;
  table["unpack.2.b64"] = &unpack<64, 2>;
  table["unpack.4.b64"] = &unpack<64, 4>;
  return table;
}

}  // namespace

Operation operation_named(std::string_view opcode) {
  static const Table table = all_operations();
  const auto found = table.find(opcode);
  dhp::check(found != table.end(), "operations.cpp does not know ", std::string(opcode));
  return found->second;
}

}  // namespace tests::ptx
