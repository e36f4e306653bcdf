// A matrix of Eigen, seen as a tensor.
#include <dhp/eigen.hpp>

int main() {
  const Eigen::MatrixXf samples = Eigen::MatrixXf::Ones(3, 5);  // five observations
  return dhp::eigen::borrow(samples).shape() == dhp::Shape{5, 3} ? 0 : 1;
}
