// The planner's model of a step against formulas computed by hand; cluster files; the search.
#include <examples/plan/search.hpp>
#include <tests/support/tensors.hpp>
#include <tests/support/test.hpp>

namespace {

using examples::Cluster;
using examples::Layout;
using examples::ModelWork;

/// 1e9 FLOP, 1e9 bytes, or 1e9 bytes over a link take one second. A host has two ranks.
Cluster simple() {
  Cluster result;
  result.devices = 2;
  result.cores = 0;
  result.flop_32 = result.bytes_per_s = result.device.bytes_per_s = 1e9;
  result.launch_s = result.device.latency_s = result.host.latency_s = result.rack.latency_s = 0;
  result.host.bytes_per_s = result.rack.bytes_per_s = 1e8;
  return result;
}

constexpr double mega = 1 << 20;  // whole pages of ZeRO's buckets

Parameter<Meta> weights_of(std::int64_t count) {
  return std::make_shared<ParameterState<Meta>>(ParameterSpec{.name = "weight", .shape = {count}},
                                                0, 0);
}

/// Four layers. Each takes 1 s forward and 2 s backward, has `mega` parameters and keeps 1e6 bytes. Updates take 1 s.
ModelWork four_layers() {
  ModelWork work;
  work.layers.resize(4);
  for (auto& layer : work.layers) {
    layer.forward.flop = 1e9;
    layer.backward.flop = 2e9;
    layer.kept_bytes = 1e6;
    layer.trained = {weights_of(1 << 20)};
  }
  work.costs = {1, 1, 1, 1};
  work.update.bytes = 1e9;
  work.parameters = 4 * mega;
  work.weight_bytes = work.gradient_bytes = 16 * mega;
  work.optimizer_bytes = 32 * mega;
  return work;
}

examples::StepModel model_of(const Cluster& cluster, const ModelWork& work,
                             double bucket_bytes = 1e9) {
  const auto shared = std::make_shared<const ModelWork>(work);
  return examples::StepModel({.cluster = cluster,
                              .bucket_bytes = bucket_bytes,
                              .samples = 8,
                              .work = [shared](const Layout& layout) {
                                return layout.mesh.tensor > 2 ? nullptr : shared;
                              }});
}

TEST_CASE("step time: a single rank does all work in sequence") {
  auto model = model_of(simple(), four_layers());
  const auto time = model({.mesh = {1, 1, 1}}).value();
  CHECK(time.compute == Approx(8 * 12));
  CHECK(time.update == Approx(1));
  CHECK(time.total() == Approx(97));
  CHECK(time.memory_bytes == Approx(64 * mega + 4e6));
  CHECK(time.flop == Approx(8 * 12e9));
  CHECK(model({.mesh = {1, 1, 1}, .micro_batch = 4})->compute == Approx(2 * 12));
  CHECK_FALSE(model({.mesh = {16, 1, 1}}).has_value());  // 8 micro-batches
  CHECK_FALSE(model({.mesh = {1, 4, 1}}).has_value());
  CHECK_FALSE(model({.mesh = {1, 1, 5}}).has_value());  // 4 layers
}

TEST_CASE("step time: FLOP, bytes and launches add up; several cores hide a product's bytes") {
  auto cluster = simple();
  cluster.launch_s = 0.25;
  auto model = model_of(cluster, four_layers());
  examples::Work work;
  work.flop = 2e9, work.bytes = 1e9, work.product_bytes = 3e9, work.launches = 4;
  CHECK(model.seconds(work) == Approx(7));
  cluster.cores = 1;
  CHECK(model_of(cluster, four_layers()).seconds(work) == Approx(5));
  cluster.flop_dropout = 2.5e8;
  work.dropout_flop = 1e9;
  CHECK(model_of(cluster, four_layers()).seconds(work) == Approx(1 + 4 + 2));
}

TEST_CASE("step time: a pipeline waits (p - 1) (f + b), and holds p micro-batches") {
  auto model = model_of(simple(), four_layers());
  const auto time = model({.mesh = {1, 1, 4}}).value();
  CHECK(time.total() == Approx((8 + 3) * 3 + 0.25));
  CHECK(time.idle_share == Approx(3.0 / 11));
  CHECK(time.memory_bytes == Approx(16 * mega + 4 * 1e6));
  // A V's first stage holds one micro-batch of the last part, whose activations are large, and three of the first.
  auto work = four_layers();
  work.layers[3].kept_bytes = 1e9, work.transient_bytes = 1e9;
  CHECK(model_of(simple(), work)({.mesh = {1, 1, 2}, .schedule = dhp::ZeroBubbleV{}, .chunks = 2})
            ->memory_bytes == Approx(32 * mega + 1e9 + 3e6));
  // The time of many micro-batches is extrapolated.
  auto long_step =
      examples::StepModel({.cluster = simple(), .samples = 1000, .work = [](const Layout&) {
                             return std::make_shared<const ModelWork>(four_layers());
                           }});
  CHECK(long_step({.mesh = {1, 1, 4}})->total() == Approx((1000 + 3) * 3 + 0.25));
  CHECK(long_step({.mesh = {1, 1, 4}, .schedule = dhp::GPipe{}})->memory_bytes ==
        Approx(16 * mega + 1000 * 1e6));
}

TEST_CASE("step time: buckets that are ready early are hidden, the last one is not") {
  auto cluster = simple();
  cluster.device.bytes_per_s = 8 * mega;  // 16 MiB of gradients, sent once by two ranks: 2 s
  CHECK(model_of(cluster, four_layers())({.mesh = {2, 1, 1}})->data == Approx(2));
  // Four buckets of half a second: three are done before the first layer's backward pass ends.
  CHECK(model_of(cluster, four_layers(), 4 * mega)({.mesh = {2, 1, 1}})->data == Approx(0.5));
  CHECK(model_of(cluster, four_layers())({.mesh = {2, 1, 1}, .zero = 1})->update == Approx(0.5));
}

TEST_CASE("step time: ZeRO 2 sums after each micro-batch, during the next forward pass") {
  auto cluster = simple();
  cluster.device.bytes_per_s = 2 * mega;  // 16 MiB of gradients: 4 s to sum, 4 s to gather weights
  auto work = four_layers();
  const Layout layout{.mesh = {2, 1, 1}, .micro_batch = 2, .zero = 2};  // two micro-batches each
  // Each layer is a bucket. Only the gather of the first weights and the sum of the last gradients are exposed.
  CHECK(model_of(cluster, work)(layout)->data == Approx(1 + 1));
  // TCP uses the host's only core.
  auto across = cluster;
  across.devices = across.cores = 1, across.host = cluster.device;
  CHECK(model_of(across, work)(layout)->data == Approx(2 + 1.3e-9 * 24 * mega * (1 - 2.0 / 12)));
  // A faster link never takes longer, although more bytes are hidden.
  auto quick = work;
  for (auto& layer : quick.layers) layer.forward.flop = 1e6, layer.backward.flop = 2e6;
  double slower = 100;
  across.device.bytes_per_s = 1e12;
  for (across.host.bytes_per_s = 1e8; across.host.bytes_per_s < 1e11;
       across.host.bytes_per_s *= 1.25) {
    const auto data =
        model_of(across, quick, 4 * mega)({.mesh = {2, 1, 1}, .micro_batch = 4})->data;
    CHECK(data <= std::exchange(slower, data) * (1 + 1e-9));
  }
  // The slow link carries the weights in 16 s, and then the sums of each micro-batch in 16 s, once its pass is done.
  cluster.device.bytes_per_s = mega / 2;
  CHECK(model_of(cluster, work)(layout)->data == Approx(16 + (3 + 16) + (2 + 16) - 2 * 12));
}

TEST_CASE("step time: ZeRO 3 gathers a bucket during the use of the previous one") {
  auto cluster = simple();
  cluster.device.bytes_per_s = 2 * mega;  // a second for a layer's weights, and for its gradients
  auto work = four_layers();
  CHECK(model_of(cluster, work)({.mesh = {2, 1, 1}, .micro_batch = 2, .zero = 3})->data ==
        Approx(1 + 1));
  // The slow link carries the weights, then four sums and two gathers, because the last two layers' weights stay.
  cluster.device.bytes_per_s = mega / 2;
  CHECK(model_of(cluster, work)({.mesh = {2, 1, 1}, .micro_batch = 4, .zero = 3})->data ==
        Approx(16 + 3 + (4 + 2) * 4 - 12));
}

TEST_CASE("step time: ZeRO sends whole pages of each replica") {
  auto cluster = simple();
  cluster.devices = 8, cluster.device.bytes_per_s = mega;
  auto work = four_layers();
  work.parameters = 4000, work.gradient_bytes = 16000;
  for (auto& layer : work.layers)
    layer.forward = layer.backward = {}, layer.trained = {weights_of(1000)};
  const auto data = [&](int zero, double bucket) {
    return model_of(cluster, work, bucket)({.mesh = {8, 1, 1}, .zero = zero})->data;
  };
  CHECK(data(0, 1e9) == Approx(2 * 7.0 / 8 * 16000 / mega));
  CHECK(data(1, 1e9) == Approx(2 * 7.0 / 8 * 0.5));  // a bucket of 8 pages of 64 KiB
  CHECK(data(1, 4000) == Approx(2 * 7.0 / 8 * 4 * 0.5));
}

TEST_CASE("step time: groups across hosts use the hosts' links in parallel") {
  auto model = model_of(simple(), four_layers());
  CHECK(model.exchange(1, 1e8, 2, 1, 4) == Approx(0.1));  // on one host
  CHECK(model.exchange(1, 1e8, 2, 2, 4) == Approx(1));    // one rank on each host
  CHECK(model.exchange(1, 1e8, 4, 1, 4) == Approx(0.5));  // two on each
  CHECK(model.exchange(1, 1e8, 1, 1, 4) == 0);
  auto cluster = simple();
  cluster.devices = 4;
  model = model_of(cluster, four_layers());
  CHECK(model.exchange(1, 1e8, 3, 1, 3) == Approx(0.1));
  CHECK(model.exchange(1, 1e8, 3, 1, 6) == Approx(1));  // this group is on two hosts
  // Of the two stages on a host, the first sends within the host and the second to another host.
  auto work = four_layers();
  for (auto& layer : work.layers) layer.output_bytes = 1e8;
  cluster.devices = 2;
  CHECK(model_of(cluster, work)({.mesh = {1, 1, 4}, .micro_batch = 8})->waiting == Approx(9 + 6));
  // Five replicas are on one host, six are not; both have two micro-batches.
  cluster.devices = 10;
  model = model_of(cluster, work);
  CHECK(model({.mesh = {5, 1, 2}})->waiting < model({.mesh = {6, 1, 2}})->waiting - 1);
}

TEST_CASE("step time: ranks that share cores are no faster than the cores") {
  auto cluster = simple();
  cluster.devices = 8, cluster.cores = 2;
  auto model = model_of(cluster, four_layers());
  CHECK(model({.mesh = {2, 1, 1}})->shared == Approx(0));
  const auto time = model({.mesh = {4, 1, 1}}).value();
  CHECK(time.shared == Approx(time.total() / 2).epsilon(0.01));
}

TEST_CASE("search: gives the fastest layouts that fit, and why others are slower") {
  auto cluster = simple();
  cluster.memory_bytes = 60e6;  // one stage needs 71e6
  auto model = model_of(cluster, four_layers());
  const examples::Choices choices{
      .ranks = {2}, .micro_batches = {1, 8}, .zero = {0, 1}, .samples = 8};
  std::vector<examples::Timed> found;
  const auto take = [&](const examples::Timed& one) {
    found.push_back(one);
    return true;
  };
  const auto [all, possible] = examples::search(model, choices, take);
  // 2x1x1 with micro-batches of 1, with and without ZeRO; 1x2x1 and 1x1x2 with micro-batches of 1 and of 8.
  CHECK(all == 6);
  CHECK(possible == 6);
  REQUIRE(found.size() > 1);
  CHECK(std::is_sorted(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first.total() < b.first.total();
  }));
  for (const auto& layout : examples::layouts_of(choices))
    CHECK(model.at_least(layout) <= model(layout)->total());
  // Layouts that cannot be the fastest are not timed.
  CHECK(examples::search(model, choices, [](const auto&) { return false; }).possible < 6);
  for (const auto& [time, layout] : found) CHECK(time.memory_bytes <= 60e6);
  examples::StepTime slow = found[0].first;
  slow.data += 0.25;
  CHECK(examples::why_slower(found[0].first, slow) == "250 ms more: data axis");
}

TEST_CASE("cluster: a file is read as written") {
  const auto result = simple();
  CHECK(Cluster::parse(result.text(), "f").text() == result.text());
  CHECK(Cluster::parse(result.text().substr(result.text().find('\n')), "f").name == "f");
}

TEST_CASE("cluster: products of 64 bits take twice as long, and a device may have no bf16") {
  auto cluster = simple();
  cluster.flop_16 = 4e9;
  CHECK(cluster.products(DType::f64) == Approx(cluster.flop_32 / 2));
  CHECK(cluster.products(DType::bf16) == Approx(10e9));
  cluster.flop_bf16 = 0;
  CHECK(cluster.products(DType::f16) == Approx(4e9));
  CHECK_THROWS_AS((void)cluster.products(DType::bf16), Error);
}

TEST_CASE("cluster: a mistake is one sentence with its line and a way out") {
  const auto text = simple().text();
  const std::string valid = "host.devices = 2\n";
  for (const auto& [line, words] :
       {std::pair{"host.devices = two\n",
                  "c.toml, line 2: --host.devices: two is not a number, such as 0.5 or 1e-3"},
        {"host.devices = \"2\"\n", "c.toml, line 2: a number stands in quotes; leave them out"},
        {"host.devices = -1\n", "-1 is not a number from 1 to 1e+15"},
        {"host.devices = 0.5\n", "0.5 is not a number from 1 to 1e+15"},
        {"host.devices = 2.5\n", "c.toml: host.devices is 2.5"},
        {"host.devices = 2,5\n", "line 2: host.devices has 2 values, and takes one"},
        {"host.devices = [2, 5]\n", "host.devices has 2 values"},
        {"host.device = 2\n", "there is no option \"host.device\"; did you mean host.devices?"},
        {"", "c.toml lacks host.devices; clusters/laptop.toml has all"}}) {
    auto wrong = text;
    wrong.replace(wrong.find(valid), valid.size(), line);
    CHECK_THROWS_WITH(Cluster::parse(wrong, "c.toml"), Contains(words));
  }
  CHECK(Cluster::parse("# one\n" + text + "# \"end\" = [\n", "f").devices == 2);
}

}  // namespace
