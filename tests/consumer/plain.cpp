// dhp.hpp needs only the standard library.
#include <dhp/dhp.hpp>

#include <cstdio>

int main() {
  const dhp::Shape shape{2, 3};
  std::printf("dhp %d.%d.%d\n", dhp::version_major, dhp::version_minor, dhp::version_patch);
  return shape.count() == 6 ? 0 : 1;
}
