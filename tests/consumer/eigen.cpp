// A tensor over the memory of an Eigen matrix.
#include <dhp/eigen.hpp>

int main() {
  const Eigen::MatrixXf samples = Eigen::MatrixXf::Ones(3, 5);  // five observations
  return dhp::eigen::borrow(samples).shape() == dhp::Shape{5, 3} ? 0 : 1;
}
