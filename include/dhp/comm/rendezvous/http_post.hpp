// HttpPost sends HTTP and HTTPS requests with libcurl, each with a time limit. Needs libcurl.
#pragma once

#include <dhp/core/error.hpp>

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace dhp::detail {

/// Keeps connections open between requests. Not thread-safe.
class HttpPost {
 public:
  struct Answer {
    int status = 0;         ///< HTTP status; 0 if there was no answer
    std::string body{};     ///< body of the answer
    std::string problem{};  ///< why there was no answer, in libcurl's words
    bool sent = false;      ///< the server may have received the request
    bool trusted = true;    ///< false: the server's certificate is refused; a retry cannot help
  };

  /// ca_file: the CA certificates to trust; empty: the system's.
  explicit HttpPost(const std::string& ca_file = {}) {
    check(library_.ready && handle_, "libcurl cannot start; is there memory left?");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_PROXY, "");  // ignores http_proxy, which is meant for hosts outside the cluster
    set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    set(CURLOPT_ERRORBUFFER, problem_.data());
    set(CURLOPT_WRITEFUNCTION, &HttpPost::take);
    if (!ca_file.empty()) set(CURLOPT_CAINFO, ca_file.c_str());
  }

  /// headers: lines such as "Authorization: ...".
  [[nodiscard]] Answer post(const std::string& url, const std::string& body,
                            const std::vector<std::string>& headers, double timeout_s) {
    std::unique_ptr<curl_slist, void (*)(curl_slist*)> list(nullptr, curl_slist_free_all);
    for (const auto& line : headers) {
      auto* const longer = curl_slist_append(list.get(), line.c_str());
      check(longer != nullptr, "libcurl has no memory for a header");
      (void)list.release();
      list.reset(longer);
    }
    Answer answer;
    problem_[0] = '\0';
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_HTTPHEADER, list.get());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    set(CURLOPT_POSTFIELDS, body.c_str());
    set(CURLOPT_WRITEDATA, &answer.body);
    set(CURLOPT_TIMEOUT_MS, std::max(1L, static_cast<long>(timeout_s * 1e3)));
    const auto code = curl_easy_perform(handle_.get());
    long sent = 0;
    (void)curl_easy_getinfo(handle_.get(), CURLINFO_REQUEST_SIZE, &sent);
    answer.sent = sent > 0;
    answer.trusted = code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE;
    if (code != CURLE_OK) {
      answer.problem = problem_[0] != '\0' ? problem_.data() : curl_easy_strerror(code);
      return answer;
    }
    long status = 0;
    (void)curl_easy_getinfo(handle_.get(), CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    return answer;
  }

 private:
  struct Library : NonCopyable {  // libcurl counts its initializations
    bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    ~Library() { curl_global_cleanup(); }
  };

  void set(CURLoption option, auto value) {
    const auto code = curl_easy_setopt(handle_.get(), option, value);
    check(code == CURLE_OK, "libcurl refuses option ", static_cast<int>(option), ": ",
          curl_easy_strerror(code));
  }
  static std::size_t take(const char* bytes, std::size_t size, std::size_t count, void* body) {
    try {
      static_cast<std::string*>(body)->append(bytes, size * count);
      return size * count;
    } catch (...) {  // out of memory; libcurl ends the request
      return 0;
    }
  }

  Library library_;
  std::vector<char> problem_ = std::vector<char>(CURL_ERROR_SIZE, '\0');
  std::unique_ptr<CURL, void (*)(CURL*)> handle_{curl_easy_init(), curl_easy_cleanup};
};

}  // namespace dhp::detail
