// Loader delivers the micro-batches of one data replica, step by step. Threads read a bounded number of steps ahead.
// The results do not depend on the number of threads.
#pragma once

#include <dhp/data/collate.hpp>
#include <dhp/data/epoch_order.hpp>
#include <dhp/data/step_source.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

struct LoaderOptions {
  std::int64_t global_batch = 32;   ///< samples per step, over all replicas
  std::int64_t micro_batch = 8;     ///< samples per micro-batch; divides the global batch
  DataReader reader{};              ///< the rank that reads; a training run fills it in
  bool shuffle = true;              ///< a new order in each epoch; false: the dataset's order
  std::int64_t shuffle_window = 0;  ///< number of samples shuffled at a time (EpochOrder); 0: all
  std::int64_t epochs = 0;          ///< passes over the dataset; 0: without end
  DataPosition from{};              ///< position where a resumed run begins
  int threads = 1;                  ///< number of prefetch threads; 0: next() reads
  int steps_ahead = 2;              ///< maximum number of prefetched steps
  bool same_shapes = false;         ///< promises that micro-batches of equal size have equal shapes
};

/// Returns options for one ordered pass over a held-out set, so that evaluation is exact for any number of replicas.
[[nodiscard]] inline LoaderOptions evaluation_pass(LoaderOptions options) {
  options.shuffle = false;
  options.epochs = 1;
  options.from = {};
  return options;
}

/// Returns the first micro-batch of a dataset in its own order, as an example input.
template <Device Dev, class B>
[[nodiscard]] MicroBatch<Dev> example_batch(Dev& dev, const B& batcher, std::int64_t samples) {
  detail::require_batcher<B>();
  const Range range{0, std::min<std::int64_t>(samples, batcher.size())};
  std::vector<std::int64_t> indices;
  for (auto sample = range.first; sample < range.last; ++sample) indices.push_back(sample);
  return upload(dev, batcher.collate(indices, 0), 0, range);
}

/// Only the rank's thread may call next(). The first call starts the prefetch threads.
template <Device Dev, class B>
class Loader final : public StepSource<Dev>, detail::NonCopyable {
 public:
  static_assert((detail::require_batcher<B>(), true));

  Loader(Dev& dev, B batcher, const LoaderOptions& options)
      : dev_(&dev),
        batcher_(std::move(batcher)),
        options_(options),
        batching_(batcher_.size(), options.global_batch, options.micro_batch) {
    check(options.threads >= 0, "loader: ", options.threads, " threads; 0 or more would be right");
    check(options.steps_ahead >= 1, "loader: reads ", options.steps_ahead,
          " steps ahead; 1 or more would be right");
    check(options.shuffle_window >= 0, "loader: shuffles in a window of ", options.shuffle_window,
          " samples; 0 or more would be right");
    check(options.epochs >= 0, "loader: ", options.epochs, " epochs; 0 or more would be right");
    options_.reader = {};
    read_as(options.reader);
    start_at(options.from);
  }
  ~Loader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (auto& thread : threads_) thread.join();
  }

  void read_as(const DataReader& reader) override {
    check(reader.replicas >= 1 && reader.replica >= 0 && reader.replica < reader.replicas,
          "loader: no replica ", reader.replica, " of ", reader.replicas);
    if (reader == options_.reader) return;
    check(
        threads_.empty(),
        "loader: it has been read with another seed or for another replica; give each run its own");
    if constexpr (requires { batcher_.labels_only(); })
      if (!reader.reads_input) batcher_ = batcher_.labels_only();
    options_.reader = reader;
    start_at(batching_.after(steps_done_));
  }
  [[nodiscard]] MicroBatch<Dev> example() override {
    return example_batch(*dev_, batcher_, options_.micro_batch);
  }

  [[nodiscard]] const Batching& batching() const { return batching_; }
  /// Returns the number of steps to the end of the last epoch; 0 means unlimited.
  [[nodiscard]] std::int64_t steps() const override {
    return options_.epochs == 0 ? 0 : batching_.steps_until(options_.epochs);
  }
  [[nodiscard]] std::int64_t steps_done() const override { return steps_done_; }
  [[nodiscard]] std::int64_t epoch() const override { return plan().epoch; }
  [[nodiscard]] std::string in_common() const override {
    const auto& cut = options_;
    return concat(detail::pluralize(batching_.dataset_size(), "sample"), " in steps of ",
                  cut.global_batch, " and micro-batches of ", cut.micro_batch,
                  cut.shuffle ? ", shuffled" : "",
                  cut.shuffle_window > 0 ? concat(" ", cut.shuffle_window, " at a time") : "");
  }
  /// Returns the plan of the next step.
  [[nodiscard]] StepPlan plan() const { return batching_.plan(steps_done_ + 1); }
  using StepSource<Dev>::finished;

  /// Continues at `from`, and drops the prefetched steps.
  void start_at(DataPosition from) override {
    const std::lock_guard lock(mutex_);
    batching_.resume_at(from);
    ahead_.clear();
    steps_done_ = from.steps_done;
    fill();
  }

  /// Returns this replica's micro-batches of the next step, in order; none if the step has too few for all replicas.
  /// Throws the error of the first unreadable micro-batch, which names the sample. The loader then stays at that step,
  /// and start_at(batching().after(steps_done() + 1)) skips it.
  [[nodiscard]] StepBatches<Dev> next() override {
    check(!finished(), "loader: the last of ", detail::pluralize(steps(), "step"),
          " was taken; more epochs have more steps, and start_at({}) begins anew");
    while (static_cast<int>(threads_.size()) < options_.threads) try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::system_error& error) {
        fail("loader: thread ", threads_.size() + 1, " of ", options_.threads,
             " cannot be started (", error.what(), "); choose fewer");
      }
    const auto slot = take();
    const auto& plan = slot->plan;
    // Only full steps keep the promise of equal shapes.
    StepBatches<Dev> result{
        .batches = {},
        .micro_batches = plan.micro_batches(),
        .samples = plan.samples,
        .same_shapes = options_.same_shapes && plan.samples == options_.global_batch};
    for (auto& job : slot->jobs) {
      const auto batch = std::move(job.batch);  // freed once the batch is on the device
      result.batches.push_back(upload(*dev_, batch, job.index, plan.samples_of(job.index)));
    }
    return result;
  }

 private:
  struct Job {  // one micro-batch
    std::int64_t index = 0;
    HostBatch batch;
    std::exception_ptr error;
  };
  struct Slot {  // one step, shared by the queue and the threads that work on it
    StepPlan plan;
    std::vector<Job> jobs;
    std::size_t begun = 0, done = 0;
  };

  // Fills the queue to its maximum length. The caller holds mutex_.
  void fill() {
    while (static_cast<int>(ahead_.size()) < options_.steps_ahead) {
      const auto step = steps_done_ + std::ssize(ahead_) + 1;
      if (options_.epochs > 0 && step > steps()) break;
      const auto slot = std::make_shared<Slot>();
      slot->plan = batching_.plan(step);
      const Range mine = slot->plan.assigned_to(options_.reader.replica, options_.reader.replicas);
      slot->jobs.resize(detail::as_size(mine.size()));
      for (auto k = mine.first; k < mine.last; ++k)
        slot->jobs[detail::as_size(k - mine.first)].index = k;
      ahead_.push_back(slot);
    }
    work_.notify_all();
  }

  // Waits for the first step of the queue, and removes the step unless it failed.
  std::shared_ptr<Slot> take() {
    std::unique_lock lock(mutex_);
    const auto slot = ahead_.front();
    while (options_.threads == 0 && slot->begun < slot->jobs.size()) do_one(lock, slot);
    done_.wait(lock, [&] { return slot->done == slot->jobs.size(); });
    for (const auto& job : slot->jobs)
      if (job.error) std::rethrow_exception(job.error);
    ahead_.pop_front();
    ++steps_done_;
    fill();
    return slot;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const auto open = std::find_if(ahead_.begin(), ahead_.end(), [](const auto& slot) {
        return slot->begun < slot->jobs.size();
      });
      if (open != ahead_.end()) do_one(lock, *open);
      else work_.wait(lock);
    }
  }

  // Reads one micro-batch of the slot, with the lock released.
  void do_one(std::unique_lock<std::mutex>& lock, std::shared_ptr<Slot> slot) {
    Job& job = slot->jobs[slot->begun++];
    lock.unlock();
    try {
      job.batch = read(slot->plan, job.index);
    } catch (...) {
      job.error = std::current_exception();
    }
    lock.lock();
    if (++slot->done == slot->jobs.size()) done_.notify_all();
  }

  [[nodiscard]] HostBatch read(const StepPlan& plan, std::int64_t k) const {
    const Range samples = plan.samples_of(k);
    const detail::EpochOrder order(batching_.dataset_size(), options_.shuffle_window,
                                   options_.reader.seed, plan.epoch);
    std::vector<std::int64_t> indices;
    for (auto sample = samples.first; sample < samples.last; ++sample) {
      const auto place = plan.first + sample;
      indices.push_back(options_.shuffle ? order(place) : place);
    }
    try {
      return batcher_.collate(indices, plan.epoch);
    } catch (const std::exception& error) {
      fail("step ", plan.step, ", micro-batch ", k, ", ", detail::sentence_of(error));
    }
  }

  Dev* dev_;
  B batcher_;
  LoaderOptions options_;
  Batching batching_;
  std::int64_t steps_done_ = 0;
  std::mutex mutex_;
  std::condition_variable work_;  // notified of new work, and when stop_ is set
  std::condition_variable done_;  // notified when a step is complete
  std::deque<std::shared_ptr<Slot>> ahead_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace dhp
