// The requests that a client of etcd sends, and the answers that it understands. These cases need no etcd.
#include <dhp/comm/rendezvous/etcd_client.hpp>
#include <tests/comm/rendezvous/stores.hpp>

namespace {

TEST_CASE("base64: decoding inverts encoding, and refuses malformed text") {
  CHECK(to_base64("") == "");
  CHECK(to_base64("a") == "YQ==");
  CHECK(to_base64("ab") == "YWI=");
  CHECK(to_base64("abc") == "YWJj");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (std::size_t size = 0; size <= all.size(); ++size) {
    const auto bytes = all.substr(all.size() - size);
    CHECK(from_base64(to_base64(bytes)) == bytes);
  }
  CHECK(to_base64(std::string("\0\0", 2)) == "AAA=");
  CHECK(from_base64("AAA=") == std::string("\0\0", 2));
  for (const auto* wrong : {"A", "AB", "ABC", "ABCDE", "A===", "====", "AB*D", "YQ=", "=", "Y==="})
    CHECK(!from_base64(wrong).has_value());
}

TEST_CASE("etcd client: endpoints are http or https URLs, and errors hide the password") {
  const auto one = parse_etcd_endpoint("https://me:p%40ss%2F@host.cluster", 1);
  CHECK(one.url == "https://host.cluster:2379");
  CHECK(one.host == "host.cluster");
  CHECK(one.user == "me");
  CHECK(one.password == "p@ss/");
  const auto six = parse_etcd_endpoint("http://[::1]:1234/", 1);
  CHECK(six.url == "http://[::1]:1234");
  CHECK(six.host == "::1");
  CHECK(six.user.empty());
  for (const auto* wrong :
       {"", "host:2379", "ftp://host", "http://", "http://h:99999", "http://h/v3", "http://h?a",
        "http://u:password@", "http://h:80#a", " http://h"})
    CHECK(message_of([&] { (void)parse_etcd_endpoint(wrong, 2); }) ==
          "endpoint 2 of etcd is not of the form http://HOST:2379 or "
          "https://USER:PASSWORD@HOST:2379; commas separate endpoints");
  const auto options = dhp::etcd_options("http://u:hidden@a,https://b:1");
  CHECK(options.endpoints == std::vector<std::string>{"http://u:hidden@a", "https://b:1"});
  const EtcdClient client(options, "rank 0");
  CHECK(client.description() == "etcd at http://a:2379, https://b:1");
  CHECK(has(message_of([] { EtcdClient none(dhp::etcd_options(""), "rank 0"); }),
            "rank 0 is to use etcd, but has no endpoint"));
}

// Answers each request with the next text of the list, and repeats the last text.
class Server {
 public:
  explicit Server(std::vector<std::string> answers)
      : answers_(std::move(answers)), listener_(Socket::listening({"127.0.0.1", 0})) {
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }
  [[nodiscard]] std::string endpoint() const {
    return concat("http://127.0.0.1:", listener_.own_end().port);
  }
  [[nodiscard]] std::string requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  static std::string answer(const std::string& status, const std::string& body) {
    return concat("HTTP/1.1 ", status, "\r\nConnection: close\r\nContent-Length: ", body.size(),
                  "\r\n\r\n", body);
  }

 private:
  void serve(const std::stop_token& stop) {
    for (std::size_t at = 0; !stop.stop_requested();) {
      Socket one(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!one) {
        sleep_ms(1);
        continue;
      }
      std::string request, bytes(4096, '\0');
      while (!request.ends_with('}') && one.receive(bytes, Deadline(hang_s))) {
        request += bytes;
        bytes.resize(4096);
      }
      const std::lock_guard lock(mutex_);
      requests_ += request + "\n";
      (void)one.send(answers_[std::min(at++, answers_.size() - 1)], Deadline(5));
    }
  }
  std::vector<std::string> answers_;
  Socket listener_;
  std::mutex mutex_;
  std::string requests_{};
  std::jthread thread_;
};

// Sends a request to the endpoint. Returns its error, "" if the endpoint answered.
std::string asked(const std::string& endpoint, double limit_s = hang_s,
                  const char* path = "kv/range") {
  bool answered = false;
  const auto error = message_of([&] {
    EtcdClient client({.endpoints = {endpoint}}, "rank 3");
    answered = client.call(path, {{"key", "YQ=="}}, limit_s).is_object();
  });
  return answered ? std::string() : error;
}

TEST_CASE("etcd client: a failing member is asked again until the time limit") {
  Server recovers({Server::answer("503 x", R"({"code":14,"message":"no leader"})"),
                   Server::answer("200 OK", "no JSON"), "no HTTP", "",
                   Server::answer("200 OK", "{}")});
  CHECK(asked(recovers.endpoint()).empty());
  CHECK(has(recovers.requests(), "POST /v3/kv/range HTTP/1.1"));
  CHECK(has(recovers.requests(), "\r\n\r\n{\"key\":\"YQ==\"}"));
  Server full(
      {Server::answer("429 x", R"({"error":"etcdserver: mvcc: database space exceeded"})")});
  CHECK(asked(full.endpoint(), 0.3) ==
        concat("rank 3 cannot reach the etcd at ", full.endpoint(),
               ": no member has answered within 0.3 s, at last ", full.endpoint(),
               ": etcdserver: mvcc: database space exceeded; are these its addresses, and is more "
               "than half of it running?"));
  const auto nobody = concat("http://127.0.0.1:", free_port());
  const auto start = std::chrono::steady_clock::now();
  const auto message = asked(nobody, 0.3);
  CHECK(seconds_since(start) >= 0.3);
  CHECK(seconds_since(start) < hang_s);
  CHECK(has(message, "within 0.3 s, at last " + nobody + ": "));
  CHECK(has(message, "onnect"));  // libcurl's message
}

TEST_CASE("etcd client: a change of users is not repeated if its answer is lost") {
  Server loses({"", Server::answer("200 OK", "{}")});
  CHECK(has(asked(loses.endpoint(), hang_s, "auth/user/add"),
            concat("rank 3 does not know whether the etcd at ", loses.endpoint(),
                   " has carried out auth/user/add: ")));
  CHECK(asked(loses.endpoint(), hang_s, "auth/user/add").empty());
}

TEST_CASE("etcd client: a refused request is not repeated") {
  Server server({Server::answer("403 x", R"({"code":7,"message":"permission denied"})")});
  CHECK(
      asked(server.endpoint()) ==
      concat("the etcd at ", server.endpoint(),
             " refuses kv/range of rank 3: permission denied; is it etcd 3.4 or later, and may its "
             "user do this?"));
  Server other({Server::answer("404 Not Found", "Not Found")});
  CHECK(has(asked(other.endpoint()), "of rank 3: HTTP status 404 and no message; is it etcd"));
  Server odd({Server::answer("400 x", R"({"code":"x","message":{},"error":[]})")});
  CHECK(has(asked(odd.endpoint()), "of rank 3: HTTP status 400 and no message; is it etcd"));
}

TEST_CASE("etcd client: a password gets a token, and an expired token is renewed once") {
  const auto token = [](const char* text) {
    return Server::answer("200 OK", concat(R"({"token":")", text, R"("})"));
  };
  const auto ended = Server::answer("401 x", R"({"code":16,"message":"invalid auth token"})");
  Server server({token("first"), ended, token("second"), Server::answer("200 OK", "{}")});
  auto with_user = server.endpoint();
  with_user.insert(7, "me:secret%20word@");
  CHECK(asked(with_user).empty());
  const auto requests = server.requests();
  CHECK(has(requests, R"({"name":"me","password":"secret word"})"));
  CHECK(has(requests, "Authorization: first"));
  CHECK(has(requests, "Authorization: second"));
  Server never({token("first"), ended, token("second"), ended});
  with_user = never.endpoint();
  with_user.insert(7, "me:secret@");
  CHECK(has(asked(with_user), "refuses kv/range of rank 3: invalid auth token; "));
}

}  // namespace
