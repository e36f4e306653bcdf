// EtcdLease ties etcd keys to the life of this process. A thread of its own renews the leases. Needs libcurl and
// nlohmann/json.
#pragma once

#include <dhp/comm/rendezvous/etcd_client.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

namespace dhp::detail {

/// There are two leases: this process's own, and one that all processes of the job share. The shared one outlives the
/// processes for a while, after which etcd removes the job's keys.
class EtcdLease : NonCopyable {
 public:
  using Json = nlohmann::json;
  static constexpr int job_s = 3600;  ///< seconds of the shared lease after the last process ended

  /// job: number of the shared lease, equal in all processes. Throws Error after timeout_s without etcd.
  EtcdLease(const EtcdOptions& options, const std::string& who, std::int64_t job, double timeout_s)
      : client_(options, who), job_(std::to_string(job)) {
    check(options.lease_s >= 1 && options.lease_s <= 3600,
          "a lease of etcd is to last 1 to 3600 s, got ", options.lease_s);
    try {
      (void)client_.call("lease/grant", {{"ID", job_}, {"TTL", job_s}}, timeout_s);
    } catch (const EtcdRefusal& refusal) {  // another process of the job made it first
      if (refusal.code() != EtcdRefusal::exists) throw;
    }
    const auto seconds = static_cast<std::int64_t>(options.lease_s + 0.5);
    const auto granted = client_.call("lease/grant", {{"TTL", seconds}}, timeout_s);
    own_ = etcd_text(granted, "ID");
    seconds_ = std::atoi(etcd_text(granted, "TTL").c_str());
    check(!own_.empty() && seconds_ > 0, "the ", client_.description(), " grants no lease");
    thread_ = std::jthread([this](const std::stop_token& stop) { keep(stop); });
  }
  ~EtcdLease() {
    thread_.request_stop();
    thread_.join();
    try {
      if (!ended_) (void)client_.call("lease/revoke", {{"ID", own_}}, 1);
    } catch (const std::exception&) {  // the lease ends by itself
    }
  }

  /// Numbers of the two leases, as etcd writes them.
  [[nodiscard]] const std::string& id() const { return own_; }
  [[nodiscard]] const std::string& job() const { return job_; }
  /// Returns the life that etcd grants id() without renewal, in seconds.
  [[nodiscard]] double seconds() const { return seconds_; }
  /// Returns whether the own lease has ended, so that this process counts as gone.
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  void keep(const std::stop_token& stop) {
    const double period_s = seconds_ / 3;
    double pause_s = period_s;
    std::unique_lock lock(mutex_);
    while (!ended_ && !wake_.wait_for(lock, stop, std::chrono::duration<double>(pause_s),
                                      [&] { return stop.stop_requested(); })) {
      try {
        pause_s = 0.05;
        ended_ = !prolong(own_, period_s) || !prolong(job_, period_s);
        pause_s = period_s;
      } catch (const KeyValueStoreLost&) {  // etcd may be back before the lease ends
      } catch (const std::exception&) {
        ended_ = true;
      }
    }
  }
  /// Renews a lease; returns whether it still exists.
  [[nodiscard]] bool prolong(const std::string& id, double limit_s) {
    const auto answer = client_.call("lease/keepalive", {{"ID", id}}, limit_s);
    const auto found = answer.find("result");
    return found != answer.end() && !etcd_text(*found, "TTL").empty();
  }

  EtcdClient client_;
  std::string own_{}, job_;
  double seconds_ = 0;
  std::atomic<bool> ended_ = false;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace dhp::detail
