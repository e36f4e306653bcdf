// A store in etcd passes the checks of every store, knows the members of a job, and handles lost answers of writes.
#include <tests/comm/rendezvous/etcd_cluster.hpp>

TEST_CASE("etcd store: every process of a job has the same keys") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  EtcdStore first(etcd.options(), {.rank = 0, .size = 2, .timeout_s = 30});
  check_store(first);
  EtcdStore second(etcd.options(), {.rank = 1, .size = 2, .timeout_s = 30});
  CHECK(first.description() == concat("etcd at ", etcd.endpoint()));
  CHECK(first.own_address() == "127.0.0.1");
  check_store(second);

  check_shared(first, second, 100);
  const std::string high("high\xff\xff", 6);
  first.set(high, "1");
  first.set(high + "\xff", std::string("\0\xff", 2));
  first.set("hii", "no");
  const KeyValueStore::Entries highest{{high, "1"}, {high + "\xff", std::string("\0\xff", 2)}};
  CHECK(second.list(high) == highest);
}

TEST_CASE("etcd store: of many concurrent creations of a key one succeeds") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  std::vector<std::unique_ptr<EtcdStore>> stores;
  for (int number = 0; number < 4; ++number)
    stores.push_back(std::make_unique<EtcdStore>(etcd.options(), member(number)));
  check_one_creates(stores, 25);
}

TEST_CASE("etcd store: members differ by number, jobs by name") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  auto store = std::make_unique<EtcdStore>(etcd.options(), member(5));
  EtcdStore other(etcd.options(), member(2147483647));
  CHECK(message_of([&] { EtcdStore again(etcd.options(), member(5)); }) ==
        concat("the etcd at ", etcd.endpoint(),
               " refuses member 5: another process is that already; give each process a number of "
               "its own, and each start a DHP_JOB of its own"));
  CHECK(message_of([&] { EtcdStore none(etcd.options(), {.rank = 2, .size = 2}); }) ==
        "there is no rank 2 in a world of 2");
  store->set("key", "of job");
  for (const auto* job : {"job/keys", "jo", "job/", "job%2F"}) {
    EtcdStore another(etcd.options(), member(5, job));
    CHECK(another.list("").empty());
    another.set("key", "of another");
  }
  CHECK(other.list("") == KeyValueStore::Entries{{"key", "of job"}});

  // A member leaves in good order, and comes back.
  CHECK(other.list(dhp::detail::left_prefix).empty());
  store.reset();
  CHECK(other.find("left/5") == "");
  CHECK(!other.find("left/").has_value());
  CHECK(!other.find("left/2147483647").has_value());
  const KeyValueStore::Entries left{{"left/5", ""}};
  for (const auto* prefix : {"left/", "le", "left/5"}) CHECK(other.list(prefix) == left);
  CHECK(other.list("left/6").empty());
  CHECK(other.list("").size() == 2);
  store = std::make_unique<EtcdStore>(etcd.options(), member(5));
  CHECK(!other.find("left/5").has_value());
  CHECK(has(message_of([&] { other.set("left/6", ""); }),
            "keys under left/ are read-only for a job, but \"left/6\""));
  CHECK_THROWS_AS(other.remove("left/6"), Error);
  CHECK_THROWS_AS((void)other.set_unless("left/6", "a", ""), Error);
}

TEST_CASE("etcd store: a write whose answer is lost is done once, and its result is known") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  Proxy proxy(etcd.port());
  EtcdStore other(etcd.options(), member(2));
  EtcdStore store({.endpoints = {proxy.endpoint(), etcd.endpoint()}}, member(1));
  const auto answer_lost = [&](auto call) {
    proxy.lose_answers(true);
    const int before = proxy.lost();
    const auto result = call();
    // Without a lost answer this tests nothing: the store has then switched to the other endpoint.
    CHECK(proxy.lost() > before);
    proxy.lose_answers(false);
    return result;
  };
  CHECK(answer_lost([&] { return store.set_unless("a", "a", "1"); }));
  CHECK(other.find("a").value() == "1");
  EtcdStore second({.endpoints = {proxy.endpoint(), etcd.endpoint()}}, member(3));
  CHECK(!answer_lost([&] { return second.set_unless("a", "a", "2"); }));
  CHECK(other.find("a").value() == "1");
  EtcdStore third({.endpoints = {proxy.endpoint(), etcd.endpoint()}}, member(4));
  CHECK(answer_lost([&] { return third.set("b", "1"), true; }));
  EtcdClient client(etcd.options(), "rank 0");
  const auto found = client.call("kv/range", {{"key", to_base64("dhp/job/keys/b")}}, hang_s);
  CHECK(found["kvs"][0]["version"] == "1");  // set once
}

TEST_CASE("etcd store: a silent endpoint is skipped") {
  if (!etcd_is_here()) return;
  const EtcdCluster etcd;
  const auto nobody = concat("http://127.0.0.1:", free_port());
  EtcdStore store({.endpoints = {nobody, etcd.endpoint()}}, member(1));
  check_store(store);
  CHECK(store.description() == concat("etcd at ", nobody, ", ", etcd.endpoint()));
  const auto silent = Socket::listening({"127.0.0.1", 0});  // accepts, but never answers
  auto hurried = member(2);
  hurried.timeout_s = hurried.operation_timeout_s = 12;
  EtcdStore patient(
      {.endpoints = {concat("http://127.0.0.1:", silent.own_end().port), etcd.endpoint()}},
      hurried);
  patient.set("a", "b");
  CHECK(store.find("a").value() == "b");
}
