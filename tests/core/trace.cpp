#include <dhp/core/exposure.hpp>
#include <tests/support/test.hpp>

namespace {

TraceSpan span(TraceKind kind, double start_s, double end_s, std::string name = "all_reduce") {
  return {.kind = kind, .name = std::move(name), .start = start_s, .end = end_s};
}

// A device whose clock the test sets.
struct Clockwork {
  std::shared_ptr<Trace> given{};
  double now_s = 0;
  const std::shared_ptr<Trace>& trace() const { return given; }
  TraceMoment moment() const { return now_s; }
};
using Scope = dhp::TraceScope<Clockwork>;

TEST_CASE("trace: scopes become spans, and cost nothing without a trace") {
  Clockwork dev;
  { const Scope nothing(dev, "forward", 1); }
  dev.given = std::make_shared<Trace>();
  {
    const Scope step(dev, "step", 7, TraceKind::step);
    dev.now_s = 1;
    {
      const Scope layer(dev, std::string("conv1"));
      dev.now_s = 3;
    }
    const Scope wait(dev, "recv", std::source_location::current());
    dev.now_s = 4;
  }
  const auto spans = dev.given->spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].name == "conv1");
  CHECK(spans[0].kind == TraceKind::work);
  CHECK(spans[0].start.seconds() == 1);
  CHECK(spans[0].end.seconds() == 3);
  CHECK(spans[1].name == "recv");
  CHECK(spans[1].kind == TraceKind::wait);
  CHECK(dhp::to_text(spans[1].where).starts_with("trace.cpp:"));
  CHECK(spans[2].name == "step 7");
  CHECK(spans[2].kind == TraceKind::step);
  CHECK(spans[2].duration_s() == 4);
}

TEST_CASE("trace: a device's times are resolved once, up to a given moment") {
  int asked = 0;
  const auto later = [&](double s) {
    return TraceMoment(std::function<double()>([&asked, s] {
      ++asked;
      return s;
    }));
  };
  Trace trace;
  for (int at = 0; at < 3; ++at)
    trace.add({.kind = TraceKind::work, .name = "", .start = later(at), .end = later(at + 0.5)});
  trace.resolve(2);
  CHECK(asked == 4);
  trace.resolve(2);
  CHECK(asked == 4);
  CHECK(trace.spans()[1].duration_s() == 0.5);
  CHECK(asked == 4);
  CHECK(trace.spans()[2].start.seconds() == 2);
  CHECK(asked == 5);
  trace.resolve(100);
  CHECK(asked == 7);
}

TEST_CASE("trace: spans beyond the capacity are counted") {
  Trace trace(2);
  for (int at = 0; at < 5; ++at) trace.add(span(TraceKind::work, at, at + 1));
  CHECK(trace.spans().size() == 2);
  CHECK(trace.size() == 2);
  CHECK(trace.left_out() == 3);
}

TEST_CASE("trace: the thread that works for the rank is recognized") {
  Trace trace;
  CHECK(trace.at_work());
  std::thread([&] { CHECK(!trace.at_work()); }).join();
  CHECK(trace.add_track("data") == 0);
  CHECK(trace.add_track("tensor") == 1);
  CHECK(trace.tracks()[1] == "tensor");
}

TEST_CASE("trace: exposed communication is the time that steps wait, counted once") {
  Trace trace;
  trace.add(span(TraceKind::wait, 0, 9));             // outside any step
  trace.add(span(TraceKind::communication, 10, 13));  // hidden by the step's work
  trace.add(span(TraceKind::wait, 11, 12));
  trace.add(span(TraceKind::wait, 11.25, 11.5, "inside of it"));
  trace.add(span(TraceKind::wait, 14, 14.5, "recv"));
  trace.add(span(TraceKind::step, 10, 15, "step 1"));
  trace.add(span(TraceKind::wait, 16, 17));  // lies between two steps
  trace.add(span(TraceKind::wait, 23, 26));  // ends after the step
  trace.add(span(TraceKind::step, 20, 25, "step 2"));
  const auto found = dhp::exposure_of(trace);
  CHECK(found.steps == 2);
  CHECK(found.steps_s == 10);
  CHECK(found.exposed_s == 3.5);
  CHECK(found.share() == 0.35);
  REQUIRE(found.exposed_by.size() == 2);
  for (const auto& [call, s] : found.exposed_by) CHECK(s == (call.starts_with("recv") ? 0.5 : 3));
  CHECK(dhp::exposure_of(Trace()).share() == 0);
}

}  // namespace
