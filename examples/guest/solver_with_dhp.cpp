// An MPI solver that uses dhp in a session. The solver moves heat along a ring of cells, of which each rank has a part.
// Meanwhile a small network learns to do ten of the solver's steps at once, data-parallel over the same ranks. Each
// rank trains on its own cells, and no sample leaves its rank. dhp does not initialize MPI. Its session, at the end of
// its scope, frees all MPI objects that it has made. Start it with: mpirun -n 4 solver_with_dhp
#include <dhp/comm/mpi/session.hpp>
#include <dhp/cpu.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr int blocks = 8;  // blocks of cells; each rank has some
constexpr int cells_of_a_block = 32;
constexpr int steps_at_once = 10;

/// The solver, without any use of dhp.
class Ring {
 public:
  explicit Ring(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
    first_block_ = blocks * rank_ / size_;
    last_block_ = blocks * (rank_ + 1) / size_;
    heat_.resize(static_cast<std::size_t>(cells() + 2));  // plus a neighbor's cell at each end
    for (int i = 0; i < cells(); ++i) at(i) = std::sin(angle(i)) + 0.5 * std::cos(5 * angle(i));
  }
  /// Sends the outermost cells to the neighbors, and receives theirs as cells -1 and cells().
  void exchange() {
    const int left = (rank_ + size_ - 1) % size_, right = (rank_ + 1) % size_;
    MPI_Sendrecv(&at(0), 1, MPI_DOUBLE, left, 0, &at(cells()), 1, MPI_DOUBLE, right, 0, comm_,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&at(cells() - 1), 1, MPI_DOUBLE, right, 1, &at(-1), 1, MPI_DOUBLE, left, 1, comm_,
                 MPI_STATUS_IGNORE);
  }
  void step() {
    exchange();
    auto next = heat_;
    for (int i = 0; i < cells(); ++i)
      next[static_cast<std::size_t>(i + 1)] = at(i) + 0.2 * (at(i - 1) - 2 * at(i) + at(i + 1)) +
                                              0.02 * std::sin(3 * angle(i) + 0.05 * steps_);
    heat_ = std::move(next);
    ++steps_;
  }
  double& at(int i) { return heat_[static_cast<std::size_t>(i + 1)]; }
  [[nodiscard]] int cells() const { return (last_block_ - first_block_) * cells_of_a_block; }
  [[nodiscard]] int first_block() const { return first_block_; }
  [[nodiscard]] int last_block() const { return last_block_; }

 private:
  [[nodiscard]] double angle(int i) const {
    constexpr double circle = 6.283185307179586;
    return circle * (first_block_ * cells_of_a_block + i) / (blocks * cells_of_a_block);
  }
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1, first_block_ = 0, last_block_ = 0, steps_ = 0;
  std::vector<double> heat_{};
};

/// Makes a micro-batch of a block of cells: the heat of each cell and of its neighbors, and how much it changes.
dhp::MicroBatch<dhp::Cpu> samples(dhp::Cpu& dev, int block, const std::vector<float>& before,
                                  const std::vector<float>& change) {
  dhp::MicroBatch<dhp::Cpu> result;
  result.index =
      block;  // counted over all ranks: sums do not depend on which rank computes a block
  result.first_sample = block * cells_of_a_block;
  result.samples = cells_of_a_block;
  result.input = dhp::Tensor<dhp::Cpu>::from_host(dev, {cells_of_a_block, 3}, before);
  result.side.emplace_back("targets",
                           dhp::Tensor<dhp::Cpu>::from_host(dev, {cells_of_a_block, 1}, change));
  result.counts = {{"elements", cells_of_a_block}};
  return result;
}

/// Does ten steps of the solver; returns the samples to learn from them.
dhp::StepBatches<dhp::Cpu> ten_steps(dhp::Cpu& dev, Ring& ring) {
  ring.exchange();
  std::vector<std::vector<float>> before, change;
  for (int block = ring.first_block(), i = 0; block < ring.last_block(); ++block) {
    before.emplace_back();
    for (const int end = i + cells_of_a_block; i < end; ++i)
      for (const int j : {i - 1, i, i + 1}) before.back().push_back(static_cast<float>(ring.at(j)));
  }
  for (int step = 0; step < steps_at_once; ++step) ring.step();
  dhp::StepBatches<dhp::Cpu> result{.batches = {}, .micro_batches = blocks};  // all ranks' blocks
  for (std::size_t k = 0; k < before.size(); ++k) {
    change.emplace_back();
    for (int i = 0; i < cells_of_a_block; ++i)
      change[k].push_back(static_cast<float>(ring.at(static_cast<int>(k) * cells_of_a_block + i)) -
                          before[k][static_cast<std::size_t>(3 * i + 1)]);
    result.batches.push_back(
        samples(dev, ring.first_block() + static_cast<int>(k), before[k], change[k]));
  }
  return result;
}

dhp::Model<dhp::Cpu> network(dhp::ModelBuilder<dhp::Cpu>& build) {
  const auto linear = [](int in, int out) {
    return dhp::LinearOptions{.in = in, .out = out, .weight_init = dhp::he_normal(in)};
  };
  dhp::Model<dhp::Cpu> model;
  model.add("first", dhp::Linear<dhp::Cpu>(build, "first", linear(3, 32)));
  model.add("gelu", dhp::gelu<dhp::Cpu>());
  model.add("last", dhp::Linear<dhp::Cpu>(build, "last", linear(32, 1)));
  model.loss = dhp::MeanSquaredError<dhp::Cpu>();
  return model;
}

/// Trains on every rank, with the communicator of all ranks.
void train(dhp::Comm<dhp::Cpu> world, Ring& ring) {
  dhp::Cpu dev;
  auto mine = ten_steps(dev, ring);
  // Exact sums give losses with the same bits on any number of ranks.
  const dhp::TrainingOptions options{.layout = {.data = world.size()},
                                     .store = {.deterministic = true},
                                     .optimizer = dhp::AdamWOptions{.weight_decay = 0},
                                     .trainer = {.learning_rate = {.peak = 0.01}}};
  dhp::TrainingRun run(dev, world, options, network, mine.batches.front());
  for (int step = 0; step < 60; ++step) {
    const double loss = run.step(mine).loss;
    if (world.rank() == 0) std::printf("step %2d  loss %.17g\n", step + 1, loss);
    mine = ten_steps(dev, ring);  // the solver continues between training steps
  }
}

}  // namespace

int main(int count, char** arguments) {
  int level = 0, status = 0;
  // dhp needs no higher level. Ask for MPI_THREAD_MULTIPLE if the solver communicates in other threads meanwhile.
  MPI_Init_thread(&count, &arguments, MPI_THREAD_SERIALIZED, &level);
  try {
    Ring ring(MPI_COMM_WORLD);
    dhp::MpiSession session(MPI_COMM_WORLD, {.timeout_s = 300});
    session.run([&](dhp::Comm<dhp::Cpu> world) { train(std::move(world), ring); });
  } catch (const dhp::Error& error) {
    std::fprintf(stderr, "error: %s\n",
                 error.sentence().c_str());  // the same sentence on each rank
    status = 1;  // this solver stops; another could continue without the network
  }
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}
