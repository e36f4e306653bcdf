// Gloo's own collectives between the processes of a world, over separate contexts and a separate
// device at the same address.
#pragma once

#include <dhp/comm/gloo/connect.hpp>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace bench {

class Gloo {
 public:
  /// A collective constructor: all processes of the world call it.
  explicit Gloo(const std::shared_ptr<dhp::ProcessWatchdog>& world) {
    gloo::transport::tcp::attr where;
    where.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(where);
    const auto connected = [&](const std::string& keys) {
      auto result = std::make_shared<gloo::rendezvous::Context>(world->rank(), world->size());
      result->setTimeout(std::chrono::seconds(60));
      dhp::detail::connect_all(*result, std::make_shared<dhp::detail::GlooStore>(world, keys),
                               device);
      return result;
    };
    context_ = connected("peer/");
    scatters_ = connected("peer_scatters/");
  }

  /// Ring all-reduce, in place.
  void all_reduce(float* data, std::size_t count) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data, count);
    options.setReduceFunction([](void* out, const void* left, const void* right, std::size_t n) {
      gloo::sum<float>(out, left, right, n);
    });
    gloo::allreduce(options);
  }
  void all_gather(float* in, std::size_t count, float* out) {
    gloo::AllgatherOptions options(context_);
    options.setInput(in, count);
    options.setOutput(out, count * static_cast<std::size_t>(context_->size));
    gloo::allgather(options);
  }
  /// Returns Gloo's reduce-scatter, which works in place on persistent buffers. Collective.
  [[nodiscard]] std::unique_ptr<gloo::Algorithm> reduce_scatter(float* data, std::size_t count) {
    const auto each = static_cast<int>(count) / context_->size;
    return std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        scatters_, std::vector<float*>{data}, static_cast<int>(count),
        std::vector<int>(static_cast<std::size_t>(scatters_->size), each));
  }
  void send(const float* data, std::size_t count, int to) {
    // Gloo's send buffer takes a mutable pointer but does not write to it.
    const auto buffer =
        context_->createUnboundBuffer(const_cast<float*>(data), count * sizeof(float));
    buffer->send(to, message_tag);
    buffer->waitSend();
  }
  void recv(float* data, std::size_t count, int from) {
    const auto buffer = context_->createUnboundBuffer(data, count * sizeof(float));
    buffer->recv(from, message_tag);
    buffer->waitRecv();
  }

 private:
  static constexpr std::uint64_t message_tag = std::uint64_t{1} << 60;

  std::shared_ptr<gloo::rendezvous::Context> context_;
  // A connection keeps the sizes of its persistent buffers, which changes its speed. Separate contexts per operation
  // keep measurements independent.
  std::shared_ptr<gloo::rendezvous::Context> scatters_;
};

}  // namespace bench
