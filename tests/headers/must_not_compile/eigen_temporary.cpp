// A tensor over a temporary matrix would outlive it.
// error: the tensor would outlive this temporary matrix: give it to adopt()
#include <dhp/eigen.hpp>

int main() {
  Eigen::MatrixXf matrix(2, 2);
#ifdef GOOD
  return dhp::eigen::borrow(matrix).empty() ? 1 : 0;
#else
  return dhp::eigen::borrow(Eigen::MatrixXf(matrix * matrix)).empty() ? 1 : 0;
#endif
}
