// EtcdClient sends requests to an etcd cluster through the JSON gateway of API v3, available from etcd 3.4 on. If one
// member does not answer, the client asks the next. Needs libcurl and nlohmann/json.
#pragma once

#include <dhp/comm/rendezvous/key_value_store.hpp>
#include <dhp/comm/rendezvous/socket.hpp>

#include <curl/curl.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

/// How a job reaches and uses an etcd cluster.
struct EtcdOptions {
  /// One URL per member: "http://host:2379" or "https://user:password@host:2379". Listing all allows for a lost member.
  std::vector<std::string> endpoints;
  std::string ca_file{};  ///< CA certificates for https; empty: the system's
  double lease_s = 5;     ///< seconds without a sign of life until a process counts as gone
};

/// Parses comma-separated endpoints, and takes certificates from the variable SSL_CERT_FILE.
[[nodiscard]] inline EtcdOptions etcd_options(std::string_view endpoints) {
  EtcdOptions options;
  while (!endpoints.empty()) {
    const auto end = std::min(endpoints.find(','), endpoints.size());
    options.endpoints.emplace_back(endpoints.substr(0, end));
    endpoints.remove_prefix(std::min(end + 1, endpoints.size()));
  }
  if (const char* const file = std::getenv("SSL_CERT_FILE")) options.ca_file = file;
  return options;
}

namespace detail {

[[nodiscard]] inline std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends with a zero
  (void)EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()),
                        static_cast<int>(bytes.size()));
  text.pop_back();
  return text;
}
/// Returns nullopt if the text is not base64.
[[nodiscard]] inline std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes(text.size() / 4 * 3, '\0');
  const auto padding = text.size() - std::min(text.find_last_not_of('=') + 1, text.size());
  const int written = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                      reinterpret_cast<const unsigned char*>(text.data()),
                                      static_cast<int>(text.size()));
  if (written < 0 || padding > 2 || text.size() % 4 != 0) return std::nullopt;
  bytes.resize(as_size(written) - padding);
  return bytes;
}

/// Address of one member of etcd.
struct EtcdEndpoint {
  std::string url;   // "http://host:2379", without a password
  std::string host;  // name or address, without brackets
  std::string user{}, password{};
};

/// number: position in the list. Messages show it instead of the text, which may hold a password.
[[nodiscard]] inline EtcdEndpoint parse_etcd_endpoint(const std::string& text, std::size_t number) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
  const auto part = [&](CURLUPart which, unsigned flags = 0) {
    char* found = nullptr;
    const auto code = curl_url_get(url.get(), which, &found, flags);
    const std::unique_ptr<char, void (*)(void*)> owner(found, curl_free);
    return code == CURLUE_OK ? std::string(found) : std::string();
  };
  const bool parsed =
      url != nullptr && curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  const auto scheme = part(CURLUPART_SCHEME), path = part(CURLUPART_PATH);
  check(parsed && (scheme == "http" || scheme == "https") && (path.empty() || path == "/") &&
            part(CURLUPART_QUERY).empty() && part(CURLUPART_FRAGMENT).empty(),
        "endpoint ", number,
        " of etcd is not of the form http://HOST:2379 or https://USER:PASSWORD@HOST:2379; commas "
        "separate endpoints");
  auto host = part(CURLUPART_HOST);
  const auto given = part(CURLUPART_PORT);
  const auto address = concat(scheme, "://", host, ":", given.empty() ? "2379" : given);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return {address, host, part(CURLUPART_USER, CURLU_URLDECODE),
          part(CURLUPART_PASSWORD, CURLU_URLDECODE)};
}

/// Returns a text field of an answer; an empty text if it is missing. etcd writes 64-bit numbers as texts.
[[nodiscard]] inline std::string etcd_text(const nlohmann::json& answer, const char* name) {
  const auto at = answer.find(name);
  return at != answer.end() && at->is_string() ? at->get<std::string>() : std::string();
}

/// Thrown if etcd understood a request and refused it.
class EtcdRefusal : public Error {
 public:
  static constexpr int not_found = 5, exists = 9, unauthenticated = 16;  // gRPC's codes

  EtcdRefusal(int code, const Located& sentence) : Error(sentence), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Keeps connections open between requests. Not thread-safe.
class EtcdClient {
 public:
  using Json = nlohmann::json;
  static constexpr double first_attempts_s = 3;  ///< limit of the first attempts; it grows later

  /// who: this process in messages, such as "rank 3".
  EtcdClient(const EtcdOptions& options, std::string who) : who_(std::move(who)) {
    check(library_.ready && curl_, "libcurl cannot start; is there memory left?");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROXY, "");  // ignores http_proxy, which is meant for hosts outside the cluster
    set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(CURLOPT_ERRORBUFFER, problem_.data());
    set(CURLOPT_WRITEFUNCTION, &EtcdClient::take);
    if (!options.ca_file.empty()) set(CURLOPT_CAINFO, options.ca_file.c_str());
    check(!options.endpoints.empty(), who_,
          " is to use etcd, but has no endpoint; give one, such as http://HOST:2379");
    for (const auto& text : options.endpoints)
      endpoints_.push_back(parse_etcd_endpoint(text, endpoints_.size() + 1));
  }

  /// Returns "etcd at http://a:2379, http://b:2379".
  [[nodiscard]] std::string description() const {
    std::string text = "etcd at ";
    for (const auto& endpoint : endpoints_)
      text += concat(&endpoint == endpoints_.data() ? "" : ", ", endpoint.url);
    return text;
  }
  /// Returns the host of the member that is asked first: the one that answered last.
  [[nodiscard]] const std::string& host() const { return endpoints_[current_].host; }

  [[nodiscard]] std::vector<std::string> hosts() const {
    std::vector<std::string> hosts;
    for (const auto& endpoint : endpoints_) hosts.push_back(endpoint.host);
    return hosts;
  }

  /// path: such as "kv/range". Throws EtcdRefusal, or KeyValueStoreLost if no member answers within limit_s, though the
  /// request may have been carried out. Requests under "auth/", which change users and roles, are sent once only.
  [[nodiscard]] Json call(const char* path, const Json& request, double limit_s) {
    const Deadline deadline(limit_s);
    const bool repeats = !std::string_view(path).starts_with("auth/");
    double attempt_s = limit_s;
    if (repeats)
      attempt_s = std::min(first_attempts_s, limit_s / static_cast<double>(endpoints_.size() + 1));
    const auto body = request.dump();
    std::string problem;
    std::size_t refused = 0;  // members with refused certificates in this round
    for (std::size_t failures = 0;;) {
      const auto& endpoint = endpoints_[current_];
      const double left_s = deadline.left_s();
      std::string why;
      if (auto answer = ask(endpoint, path, body, Deadline(std::min(attempt_s, left_s)), why))
        return std::move(*answer);
      // An attempt that the limit cuts short says less than those before it.
      if (left_s >= attempt_s || problem.empty()) problem = concat(endpoint.url, ": ", why);
      if (!repeats && sent_)
        throw KeyValueStoreLost(concat(who_, " does not know whether the ", description(),
                                       " has carried out ", path, ": ", problem,
                                       "; look, and ask again"));
      refused += trusted_ ? 0 : 1;
      if (refused == endpoints_.size())
        throw KeyValueStoreLost(
            concat(who_, " does not trust the ", description(), ": ", problem,
                   "; name the file of the authority that signed its certificate"));
      if (deadline.passed())
        throw KeyValueStoreLost(
            concat(who_, " cannot reach the ", description(), ": no member has answered within ",
                   limit_s, " s, at last ", problem,
                   "; are these its addresses, and is more than half of it running?"));
      current_ = (current_ + 1) % endpoints_.size();
      if (++failures % endpoints_.size() != 0) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      attempt_s *= 2;  // a busy member or process may connect slowly
      refused = 0;
    }
  }

 private:
  /// Returns whether another member or a later attempt may succeed.
  [[nodiscard]] static bool passes(long status) {
    return status == 408 || status == 429 || status >= 500;
  }

  /// Returns nullopt, with the reason in `why`, if another member should be asked.
  [[nodiscard]] std::optional<Json> ask(const EtcdEndpoint& endpoint, const char* path,
                                        const std::string& body, const Deadline& deadline,
                                        std::string& why) {
    for (bool again = false;; again = true) {
      if (!endpoint.user.empty() && token_.empty()) {
        const Json login{{"name", endpoint.user}, {"password", endpoint.password}};
        const auto granted =
            post(endpoint, "auth/authenticate",
                 login.dump(-1, ' ', false, Json::error_handler_t::replace), deadline, why);
        if (!granted) return std::nullopt;
        token_ = etcd_text(*granted, "token");
      }
      try {
        return post(endpoint, path, body, deadline, why);
      } catch (const EtcdRefusal& refusal) {
        // Tokens expire, and changes of users and roles invalidate them.
        const bool old = refusal.code() == EtcdRefusal::unauthenticated ||
                         refusal.sentence().find("auth store is old") != std::string::npos;
        if (!old || again || token_.empty()) throw;
        token_.clear();
      }
    }
  }
  [[nodiscard]] std::optional<Json> post(const EtcdEndpoint& endpoint, const char* path,
                                         const std::string& body, const Deadline& deadline,
                                         std::string& why) {
    // The empty "Expect:" keeps libcurl from waiting for "100 Continue" before it sends large bodies.
    std::vector<std::string> headers{"Content-Type: application/json", "Expect:"};
    if (!token_.empty()) headers.push_back("Authorization: " + token_);
    const auto url = concat(endpoint.url, "/v3/", path);
    std::string text;
    const auto code = perform(url, headers, body, deadline, text);
    trusted_ = code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE;
    if (code != CURLE_OK) {
      why = problem_[0] != '\0' ? problem_.data() : curl_easy_strerror(code);
      return std::nullopt;
    }
    long status = 0;
    (void)curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    auto json = Json::parse(text, nullptr, false);
    const bool object = json.is_object();
    if (status == 200 && object) return std::optional(std::move(json));
    why = etcd_text(json, "message");
    if (why.empty()) why = etcd_text(json, "error");
    if (why.empty()) why = concat("HTTP status ", status, " and no message");
    if (passes(status) || status == 200) return std::nullopt;
    const auto number = json.find("code");
    throw EtcdRefusal(number != json.end() && number->is_number_integer() ? number->get<int>() : 0,
                      concat("the ", description(), " refuses ", path, " of ", who_, ": ", why,
                             "; is it etcd 3.4 or later, and may its user do this?"));
  }

  /// headers: lines such as "Authorization: ...". The body of the answer is appended to `text`.
  [[nodiscard]] CURLcode perform(const std::string& url, const std::vector<std::string>& headers,
                                 const std::string& body, const Deadline& deadline,
                                 std::string& text) {
    std::unique_ptr<curl_slist, void (*)(curl_slist*)> list(nullptr, curl_slist_free_all);
    for (const auto& line : headers) {
      auto* const longer = curl_slist_append(list.get(), line.c_str());
      check(longer != nullptr, "libcurl has no memory for a header");
      (void)list.release();
      list.reset(longer);
    }
    problem_[0] = '\0';
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_HTTPHEADER, list.get());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    set(CURLOPT_POSTFIELDS, body.c_str());
    set(CURLOPT_WRITEDATA, &text);
    set(CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(deadline.left_s() * 1e3)));
    const auto code = curl_easy_perform(curl_.get());
    long sent = 0;
    (void)curl_easy_getinfo(curl_.get(), CURLINFO_REQUEST_SIZE, &sent);
    sent_ = sent > 0;
    return code;
  }
  void set(CURLoption option, auto value) {
    const auto code = curl_easy_setopt(curl_.get(), option, value);
    check(code == CURLE_OK, "libcurl refuses option ", static_cast<int>(option), ": ",
          curl_easy_strerror(code));
  }
  static std::size_t take(const char* bytes, std::size_t size, std::size_t count, void* text) {
    try {
      static_cast<std::string*>(text)->append(bytes, size * count);
      return size * count;
    } catch (...) {  // out of memory; libcurl ends the request
      return 0;
    }
  }

  struct Library : NonCopyable {  // libcurl counts its initializations
    bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    ~Library() { curl_global_cleanup(); }
  };
  Library library_;
  std::vector<char> problem_ = std::vector<char>(CURL_ERROR_SIZE, '\0');  // in libcurl's words
  std::unique_ptr<CURL, void (*)(CURL*)> curl_{curl_easy_init(), curl_easy_cleanup};
  bool sent_ = false;    // the server may have received the last request
  bool trusted_ = true;  // false: its certificate is refused; a retry cannot help
  std::string who_;
  std::vector<EtcdEndpoint> endpoints_{};
  std::size_t current_ = 0;
  std::string token_{};  // valid for all members; empty before the login
};

}  // namespace detail

}  // namespace dhp
