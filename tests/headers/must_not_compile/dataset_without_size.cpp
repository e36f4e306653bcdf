// A type without size() is no dataset.
// error: data.size()
#include <dhp/data/dataset.hpp>

using namespace dhp;

struct Numbers {
  using Sample = std::int64_t;
#ifdef GOOD
  [[nodiscard]] std::int64_t size() const { return 8; }
#endif
  [[nodiscard]] Sample get(std::int64_t index) const { return index; }
};

auto result() { return split_fraction(Numbers{}, 0.5); }
