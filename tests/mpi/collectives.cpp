// collectives: the tests of every communicator, over the ranks of mpirun, in sessions on a host program that always has
// MPI messages of its own in flight. Prints errors and then exits with 1.
#define DOCTEST_CONFIG_IMPLEMENT  // shared test headers include doctest; main() is below
#include <dhp/comm/mpi/session.hpp>
#include <dhp/comm/progress.hpp>
#include <tests/comm/collectives.hpp>

namespace {

/// The host's own messages, with every tag that dhp's messages may have, between all pairs of ranks.
class HostTraffic {
 public:
  HostTraffic() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    const auto room = static_cast<std::size_t>(size_ * tags);
    sent_.resize(room);
    received_.resize(room, -1);
    for (int peer = 0; peer < size_; ++peer)
      for (int tag = 0; tag < tags; ++tag) {
        const auto at = static_cast<std::size_t>(peer * tags + tag);
        sent_[at] = rank_ * 1000 + tag;
        requests_.push_back(MPI_REQUEST_NULL);
        MPI_Irecv(&received_[at], 1, MPI_INT, peer, tag, MPI_COMM_WORLD, &requests_.back());
      }
  }
  /// Finishes the messages that were begun before dhp's calls; returns errors.
  std::string wrong() {
    for (int peer = 0; peer < size_; ++peer)
      for (int tag = 0; tag < tags; ++tag)
        MPI_Send(&sent_[static_cast<std::size_t>(peer * tags + tag)], 1, MPI_INT, peer, tag,
                 MPI_COMM_WORLD);
    MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < size_; ++peer)
      for (int tag = 0; tag < tags; ++tag)
        if (received_[static_cast<std::size_t>(peer * tags + tag)] != peer * 1000 + tag)
          return concat("the host's message with tag ", tag, " from rank ", peer,
                        " is another one");
    return "";
  }

 private:
  static constexpr int tags = 8;
  int rank_ = 0, size_ = 0;
  std::vector<int> sent_{}, received_{};
  std::vector<MPI_Request> requests_{};
};

/// Sends 80 MB to the next rank, and sums 80 MB.
std::string wrong_big(Comm<Cpu>& world, Cpu& dev) {
  const std::int64_t count = 20'000'000;
  const int n = world.size(), me = world.rank();
  auto x = tensor_of(dev, brought_by<float>(me, count));
  world.send(dev, std::move(x), (me + 1) % n);
  x = Tensor<Cpu>(dev, DType::f32, {count});
  world.recv(dev, x.mut(), (me + n - 1) % n);
  if (!same_bits(x.to_host<float>(dev), brought_by<float>((me + n - 1) % n, count)))
    return "the message";
  world.all_reduce(dev, x.mut()).wait();
  const auto sums = generate<float>(count, [&](auto i) { return reduced_value(n, i); });
  return same_bits(x.to_host<float>(dev), sums) ? "" : "all_reduce";
}

/// Messages of a world without a communicator.
struct Alone {
  explicit Alone(MPI_Comm host, std::size_t piece_bytes)
      : context(std::make_shared<detail::MpiContext>(host, 60, std::make_shared<std::mutex>())),
        messages(latch, context, piece_bytes) {}
  detail::Peer to() const { return peer(1); }
  detail::Peer from() const { return peer(context->size() - 1); }
  detail::Peer peer(int distance) const {
    const int rank = (context->rank() + distance) % context->size();
    return {rank, rank};
  }
  std::shared_ptr<detail::MpiContext> context;
  Latch latch;
  detail::MpiMessages messages;
};

/// Messages in pieces, like those above 1 GiB: the last piece is not full, and several messages are in flight.
std::string wrong_pieces(MPI_Comm host) {
  Alone alone(host, 1000);
  std::string wrong;
  std::vector<std::vector<std::uint8_t>> out, in;
  for (const std::int64_t bytes : {0, 1, 999, 1000, 1001, 2000, 123456}) {
    out.push_back(generate<std::uint8_t>(bytes, [&](auto i) { return (i * 7 + bytes) % 251; }));
    in.emplace_back(static_cast<std::size_t>(bytes));
  }
  const auto tag_of = [](std::size_t k) { return std::uint64_t{1} << 43 | k / 3 << 2; };
  std::vector<detail::Messages::Handle> transfers;
  for (std::size_t k = 0; k < in.size(); ++k) {
    transfers.push_back(alone.messages.receive(reinterpret_cast<std::byte*>(in[k].data()),
                                               in[k].size(), alone.from(), tag_of(k)));
    transfers.push_back(alone.messages.send(reinterpret_cast<const std::byte*>(out[k].data()),
                                            out[k].size(), alone.to(), tag_of(k)));
  }
  for (auto& transfer : transfers) transfer->wait();
  for (std::size_t k = 0; k < in.size(); ++k)
    if (in[k] != out[k]) detail::append_text(wrong, concat(in[k].size(), " bytes; "));
  alone.context->call([&] { alone.context->close(); });
  return wrong;
}

/// When the world ends, waits for a message without a sender and for a barrier must end, though all peers still run.
std::string wrong_end(MPI_Comm host) {
  Alone alone(host, detail::MpiMessages::longest_piece_bytes);
  std::vector<std::byte> out(1 << 20), in(1 << 20);
  auto sent = alone.messages.send(out.data(), out.size(), alone.to(), 1 << 2);
  auto received = alone.messages.receive(in.data(), in.size(), alone.from(), 2 << 2);
  auto barrier = alone.context->rank() == 0
                     ? nullptr
                     : alone.messages.start({.call = {.kind = CallKind::barrier}});
  MPI_Barrier(host);  // worlds end on all ranks at about the same time
  alone.latch.abort("the end");
  std::string wrong;
  for (auto* const handle : {&received, &barrier}) {
    if (!*handle) continue;
    const auto end = message_of([&] { (*handle)->wait(); });
    if (end != "the end") detail::append_text(wrong, concat("a wait ends with ", end, "; "));
    handle->reset();
  }
  sent.reset();
  return wrong;
}

std::string wrong_in_background(Comm<Cpu>& world, Cpu& dev) {
  Progress<Cpu> first(world), second(world);
  auto x = tensor_of(dev, brought_by<float>(world.rank(), 300000));
  auto y = clone(dev, x.view()), z = clone(dev, x.view());
  auto x_done = first.start(dev, Collective<Cpu>::all_reduce(x.mut())),
       y_done = second.start(dev, Collective<Cpu>::all_reduce(y.mut()));
  world.all_reduce(dev, z.mut()).wait();
  x_done.wait();
  y_done.wait();
  const bool same = same_bits(x.to_host<float>(dev), z.to_host<float>(dev)) &&
                    same_bits(y.to_host<float>(dev), z.to_host<float>(dev));
  return same ? "" : "sums of three threads differ";
}

/// A session of half of the ranks, over a communicator of the host, beside a session of all ranks.
std::string wrong_two_sessions(MpiSession& whole, Cpu& dev) {
  auto world = whole.world();
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank() % 2, -world.rank(), &half);
  std::string wrong;
  {
    MpiSession session(half, {.timeout_s = 60});
    MPI_Comm_free(&half);  // dhp has made its own
    auto part = session.world();
    if (part.size() != world.size() / 2) return "the size of the half";
    if (part.rank() != (world.size() - 1 - world.rank()) / 2) wrong += "its order; ";
    wrong += wrong_of_all_kinds(part, dev);
    if (part.size() > 1) wrong += wrong_messages(part, dev);
    auto x = tensor_of<std::int64_t>(dev, {1}), y = tensor_of<std::int64_t>(dev, {1});
    auto z = tensor_of<std::int64_t>(dev, {0});
    world.send(dev, x.share(), (world.rank() + 1) % world.size());
    part.all_reduce(dev, y.mut()).wait();
    world.recv(dev, z.mut(), (world.rank() + world.size() - 1) % world.size());
    if (y.to_host<std::int64_t>(dev)[0] != part.size()) wrong += "the sum of the half";
    session.close();
  }
  return wrong;
}

/// A session of one rank, closed twice.
std::string wrong_alone(Cpu& dev) {
  MpiSession session(MPI_COMM_SELF);
  auto world = session.world();
  auto x = tensor_of<float>(dev, {5});
  world.all_reduce(dev, x.mut()).wait();
  session.close();
  session.close();
  return world.size() == 1 && x.to_host<float>(dev)[0] == 5 ? "" : "not the identity";
}

std::string wrong_after_close() {
  MpiSession session(MPI_COMM_WORLD, {.timeout_s = 60});
  auto world = session.world();
  session.close();
  const auto end = message_of([&] { world.barrier(); });
  return has(end, "has been closed") ? "" : end;
}

std::string wrong_refusals() {
  std::string wrong;
  const auto expect = [&](MPI_Comm host, const std::string& address, const char* part) {
    const auto message =
        message_of([&] { MpiSession session(host, {.timeout_s = 20, .address = address}); });
    if (!has(message, part)) detail::append_text(wrong, concat(message, " for ", part, "; "));
  };
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL, both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 99, &both);
  expect(MPI_COMM_NULL, "", "MPI_COMM_NULL");
  expect(both, "", "an intercommunicator");
  MPI_Comm_free(&both);
  MPI_Comm_free(&half);
  // No machine has this address (RFC 5737). All ranks get the error.
  expect(MPI_COMM_WORLD, "192.0.2.1", "rank 0 has no address for the other ranks");
  return wrong;
}

int run() {
  Cpu dev;
  HostTraffic traffic;
  int wrong_cases = 0;
  MpiSession session(MPI_COMM_WORLD, {.timeout_s = 60});
  auto world = session.world();
  const auto expect_right = [&](const char* name, const std::string& wrong) {
    if (wrong.empty()) return;
    std::printf("rank %d: %s: %s\n", world.rank(), name, wrong.c_str());
    ++wrong_cases;
  };
  for (const auto& check_one : all_checks())
    expect_right(check_one.name, check_one.wrong(world, dev));
  expect_right("big", wrong_big(world, dev));
  expect_right("pieces", wrong_pieces(MPI_COMM_WORLD));
  expect_right("end", wrong_end(MPI_COMM_WORLD));
  expect_right("in the background", wrong_in_background(world, dev));
  expect_right("two sessions", wrong_two_sessions(session, dev));
  expect_right("alone", wrong_alone(dev));
  expect_right("after close", wrong_after_close());
  expect_right("refusals", wrong_refusals());
  expect_right("the host's traffic", traffic.wrong());
  session.close();
  if (world.rank() == 0 && wrong_cases == 0)
    std::printf("all right on %d ranks over %s\n", world.size(), world.transport().c_str());
  return wrong_cases == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &level);
  try {
    const int status = run();
    MPI_Finalize();
    return status;
  } catch (const Error& error) {
    std::printf("error: %s\n", error.sentence().c_str());
  }
  std::fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
