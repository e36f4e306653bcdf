// Killed members of etcd and of the job; users, passwords and certificates.
#include <tests/comm/rendezvous/etcd_cluster.hpp>

TEST_CASE("etcd store: with three members, one may be killed, and leases stay alive") {
  if (!etcd_is_here()) return;
  EtcdCluster etcd(3);
  EtcdStore store(etcd.options(), member(1));
  EtcdStore other(etcd.options(), member(2));
  check_store(store);
  for (int i = 0; i < 20; ++i) store.set(concat("key/", i), concat(i));
  etcd.end(0);  // both stores use member 0
  for (int i = 20; i < 40; ++i) store.set(concat("key/", i), concat(i));
  CHECK(other.list("key/").size() == 40);
  outlive_a_lease();
  CHECK(other.list(dhp::detail::left_prefix).empty());
  store.set("still", "here");
  CHECK(other.find("still").value() == "here");
}

TEST_CASE("etcd store: without a quorum of etcd the store is lost at the time limit") {
  if (!etcd_is_here()) return;
  EtcdCluster etcd(3);
  auto options = member(7);
  options.operation_timeout_s = 3;
  EtcdStore store(etcd.options(), options);
  etcd.end(2);
  etcd.end(1);
  auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS((void)store.find("a"), KeyValueStoreLost);
  CHECK_THROWS_AS(store.set("a", "c"), KeyValueStoreLost);
  CHECK(seconds_since(start) < hang_s);
  etcd.end(0);
  start = std::chrono::steady_clock::now();
  const auto message = message_of([&] { store.set("a", "c"); });
  CHECK(has(message, concat("member 7 cannot reach the ", store.description(),
                            ": no member has answered within 3 s, at last http://127.0.0.1:")));
  CHECK(has(message, "; are these its addresses, and is more than half of it running?"));
  CHECK(seconds_since(start) >= 3);
  CHECK(seconds_since(start) < hang_s);
}

TEST_CASE("etcd store: the store works again when etcd is back, even after a lease's time") {
  if (!etcd_is_here()) return;
  EtcdCluster etcd;
  auto options = member(7);
  options.operation_timeout_s = 4;
  EtcdStore store(etcd.options(), options);
  store.set("a", "b");
  etcd.end(0);
  const auto start = std::chrono::steady_clock::now();
  while (seconds_since(start) < 7) CHECK_THROWS_AS((void)store.find("a"), KeyValueStoreLost);
  etcd.start(0);
  const auto is_back = [&] { return message_of([&] { store.set("c", "d"); }) == "no error"; };
  CHECK(poll_until(is_back, hang_s));
  CHECK(store.find("a").value() == "b");
  outlive_a_lease();
  CHECK(store.list(dhp::detail::left_prefix).empty());
}

TEST_CASE("etcd store: a killed process has left when its lease ends, a running one stays") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  Child child([&](const Child::Send& send) {
    EtcdStore store(etcd.options(), member(3));
    store.set("from", "member 3");
    send("ready");
    sleep_ms(1e3 * hang_s);
  });
  CHECK(child.heard() == "ready");
  EtcdStore store(etcd.options(), member(4));
  outlive_a_lease();
  CHECK(store.list(dhp::detail::left_prefix).empty());
  child.signal(SIGKILL);
  (void)child.wait();
  const auto start = std::chrono::steady_clock::now();
  CHECK(!store.find("left/3").has_value());
  CHECK(store.get("left/3", hang_s).empty());
  CHECK(seconds_since(start) > 0.3);
  CHECK(seconds_since(start) < hang_s);
  CHECK(store.find("from").value() == "member 3");
  CHECK(store.list(dhp::detail::left_prefix).size() == 1);
}

TEST_CASE("etcd store: a process that was stopped for longer than its lease writes nothing") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  Child child([&](const Child::Send& send) {
    EtcdStore own(etcd.options(), member(3));
    std::string end;
    // Calls fail at once, even before the renewing thread notices that the lease has ended. SIGSTOP may hit any write.
    try {
      own.set("ready", "");
      for (int i = 0;; ++i) own.set("written", concat(i));
    } catch (const KeyValueStoreLost& lost) {
      end = lost.sentence();
    }
    if (!has(message_of([&] { (void)own.find("a"); }), "its lease has ended")) end += "?";
    send(end);
  });
  EtcdStore store(etcd.options(), member(4));
  CHECK(store.get("ready", hang_s).empty());
  child.signal(SIGSTOP);
  CHECK(store.get("left/3", hang_s).empty());
  EtcdStore heir(etcd.options(), member(3));  // takes over the member number
  heir.set("written", "by another");
  child.signal(SIGCONT);
  CHECK(child.heard() ==
        concat("member 3 has lost the ", store.description(),
               ": its lease has ended, since this process was not heard of for 5 s; the "
               "others count it as gone, so it has to start anew"));
  CHECK(store.find("written").value() == "by another");
}

TEST_CASE("etcd store: works with a user and a password, and is refused without") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  EtcdClient root(etcd.options(), "root");
  (void)root.call("auth/user/add", {{"name", "root"}, {"password", "of root"}}, hang_s);
  (void)root.call("auth/user/grant", {{"user", "root"}, {"role", "root"}}, hang_s);
  (void)root.call("auth/user/add", {{"name", "trainer"}, {"password", "of trainer"}}, hang_s);
  (void)root.call("auth/role/add", {{"name", "dhp"}}, hang_s);
  (void)root.call(
      "auth/role/grant",
      {{"name", "dhp"},
       {"perm",
        {{"permType", "READWRITE"}, {"key", to_base64("dhp/")}, {"range_end", to_base64("dhp0")}}}},
      hang_s);
  (void)root.call("auth/user/grant", {{"user", "trainer"}, {"role", "dhp"}}, hang_s);
  (void)root.call("auth/enable", EtcdClient::Json::object(), hang_s);
  const auto as = [&](const std::string& user) {
    auto endpoint = etcd.endpoint();
    return EtcdOptions{.endpoints = {endpoint.insert(7, user)}};
  };
  {
    EtcdStore store(as("trainer:of%20trainer@"), member(1));
    check_store(store);
    EtcdClient other(as("root:of%20root@"), "root");  // a change of users ends tokens
    (void)other.call("auth/role/add", {{"name", "more"}}, hang_s);
    check_store(store);
    outlive_a_lease();  // the lease is renewed with a new token
    store.set("still", "here");
  }
  const auto refused = [&](const std::string& user) {
    return message_of([&] { EtcdStore none(as(user), member(2)); });
  };
  CHECK(has(refused("trainer:wrong@"), "refuses auth/authenticate of member 2: "));
  CHECK(!has(refused("trainer:wrong@"), "wrong"));
  CHECK(has(refused(""), " refuses "));
}

TEST_CASE("etcd store: works over https with a self-signed certificate") {
  if (!etcd_is_here()) return;
  const Folder folder;
  const auto key = folder / "key", certificate = folder / "certificate";
  const auto make =
      concat("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=etcd -addext ",
             "subjectAltName=IP:127.0.0.1 -keyout ", key, " -out ", certificate, " 2>/dev/null");
  if (std::system(make.c_str()) != 0) {
    MESSAGE("skipped: this machine has no openssl to make a certificate");
    return;
  }
  const EtcdCluster etcd(1, {"--cert-file", certificate, "--key-file", key});
  auto options = etcd.options();
  options.ca_file = certificate;
  EtcdStore store(options, member(1));
  check_store(store);
  const auto start = std::chrono::steady_clock::now();
  const auto error = message_of([&] { EtcdStore none(etcd.options(), member(2)); });
  CHECK(has(error, concat("member 2 does not trust the etcd at ", etcd.endpoint())));
  CHECK(has(error, "ertificate"));
  CHECK(seconds_since(start) < member(2).timeout_s);  // a retry cannot help
}
