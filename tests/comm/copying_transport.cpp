// CopyingTransport: bytes may change at once, and a copy is used again only when its transfer is over.
#include <dhp/comm/copying_transport.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace dhp;

// Reads what it sends when it is waited for.
class Late final : public CopyingTransport {
 public:
  using CopyingTransport::send_copied;
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int, std::uint64_t) override {
    return std::make_unique<UnderWay>(*this, data, bytes);
  }
  [[nodiscard]] Handle receive(std::byte*, std::size_t, int, std::uint64_t) override { return {}; }
  void end() noexcept override { ended = true; }
  [[nodiscard]] std::string description(int) const override { return "late"; }

  std::vector<std::string> sent;
  bool ended = false;

 private:
  class UnderWay final : public Transfer {
   public:
    UnderWay(Late& transport, const std::byte* data, std::size_t bytes)
        : transport_(&transport), data_(data), bytes_(bytes) {}
    [[nodiscard]] bool wait() override {
      transport_->sent.emplace_back(reinterpret_cast<const char*>(data_), bytes_);
      return !transport_->ended;
    }

   private:
    Late* transport_;
    const std::byte* data_;
    std::size_t bytes_;
  };
};

PeerTransport::Handle send(Late& transport, std::string text) {
  auto transfer =
      transport.send_copied(reinterpret_cast<const std::byte*>(text.data()), text.size(), 1, 0);
  text.assign(text.size(), '-');
  return transfer;
}

TEST_CASE("copying_transport: each message has its own copy while it is under way") {
  Late transport;
  auto one = send(transport, "one, a long one that is nowhere but in memory"),
       two = send(transport, "two");
  CHECK(one->wait());
  CHECK(two->wait());
  auto three = send(transport, "three"), four = send(transport, "four"), five = send(transport, "");
  CHECK(five->wait());
  CHECK(four->wait());
  CHECK(three->wait());
  CHECK(transport.sent == std::vector<std::string>{"one, a long one that is nowhere but in memory",
                                                   "two", "", "four", "three"});
}

TEST_CASE("copying_transport: one that has ended keeps its copy") {
  Late transport;
  auto one = send(transport, "one");
  transport.end();
  CHECK_FALSE(one->wait());
  auto two = send(transport, "two");  // not in the memory of the first, which may still be read
  one.reset();
  CHECK_FALSE(two->wait());
  CHECK(transport.sent.back() == "two");
}

}  // namespace
