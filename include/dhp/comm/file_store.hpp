// FileStore: a store in a folder that all ranks see, a file for each key. A file has its name only when it is whole,
// is for this user alone, and carries a tag: what was not written with the secret, or not in this scope, is not
// there. The file system decides how long an operation takes.
#pragma once

#include <dhp/comm/fields.hpp>
#include <dhp/comm/hmac.hpp>
#include <dhp/comm/nonce.hpp>
#include <dhp/comm/store.hpp>
#include <dhp/core/open_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace dhp {

class FileStore final : public Store {
 public:
  /// scope: stores of one folder with different scopes know nothing of each other. secret: may be empty; then it
  /// is the rights of the folder that keep others out.
  FileStore(std::string folder, std::string scope, std::string secret)
      : folder_(std::move(folder)), scope_(std::move(scope)), secret_(std::move(secret)) {
    check(is_there(), "the ranks cannot meet in ", folder_,
          ", which is no folder; see DHP_RENDEZVOUS");
  }
  ~FileStore() override {
    if (!removes_) return;
    try {
      for (const auto& [key, value] : list({})) ::unlink(path(key).c_str());
    } catch (const Error&) {  // then there is nothing to be removed
    }
  }
  /// Its files are removed when this object ends.
  void remove_at_end() { removes_ = true; }

  [[nodiscard]] std::string description() const override {
    return concat("store in the folder ", folder_);
  }

  void set(const std::string& key, const std::string& value) override {
    check_key(key);
    check_value(key, value);
    const auto part = concat(folder_, "/.dhp-", hex(nonce()), ".part");
    try {
      {
        OpenFile file(part, O_WRONLY | O_CREAT | O_EXCL);
        check_system(::chmod(part.c_str(), S_IRUSR | S_IWUSR) == 0, "cannot change the rights of ",
                     part);
        file.write(contents(key, value));
      }
      check_system(::rename(part.c_str(), path(key).c_str()) == 0, "cannot rename ", part);
    } catch (...) {
      ::unlink(part.c_str());
      check_there();
      throw;
    }
  }
  [[nodiscard]] std::optional<std::string> find(const std::string& key) override {
    check_key(key);
    auto entry = read(path(key));
    if (!entry) check_there();
    if (!entry || entry->first != key) return std::nullopt;
    return std::move(entry->second);
  }
  [[nodiscard]] Entries list(const std::string& prefix) override {
    Entries entries;
    const auto start = stem(prefix);
    std::error_code problem;
    std::filesystem::directory_iterator files(folder_, problem);
    for (; !problem && files != std::filesystem::directory_iterator(); files.increment(problem)) {
      const auto name = files->path().filename().string();
      if (name.compare(0, start.size(), start) != 0) continue;
      auto entry = read(files->path().string());
      if (entry && entry->first.compare(0, prefix.size(), prefix) == 0 &&
          concat(folder_, "/", name) == path(entry->first))
        entries.push_back(std::move(*entry));
    }
    if (problem) check_there();
    std::sort(entries.begin(), entries.end());
    return entries;
  }
  void remove(const std::string& key) override {
    check_key(key);
    if (::unlink(path(key).c_str()) != 0) check_there();
  }

 private:
  [[nodiscard]] bool is_there() const {
    struct stat status {};
    return ::stat(folder_.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  }
  void check_there() const {
    if (!is_there())
      throw StoreLost(concat("the ", description(),
                             " is lost: there is no such folder any more; was it removed while "
                             "the job ran?"));
  }

  /// Names of files begin with their scope and a part of the key that people can read; a digest keeps them apart.
  [[nodiscard]] static std::string digest(const std::string& text) {
    return hex(hmac_sha256("dhp file store", text)).substr(0, 20);
  }
  [[nodiscard]] std::string stem(const std::string& key) const {
    constexpr std::size_t readable = 60;
    auto name = concat("dhp-", digest(scope_), "-");
    for (const char byte : key.substr(0, readable)) {
      const bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                         (byte >= '0' && byte <= '9') || byte == '-';
      name += plain ? byte : '_';
    }
    return name;
  }
  [[nodiscard]] std::string path(const std::string& key) const {
    return concat(folder_, "/", stem(key), ".", digest(key));
  }

  [[nodiscard]] std::string tag(const std::string& key, const std::string& value) const {
    std::string message;
    append_field(message, "dhp file store");
    append_field(message, scope_);
    append_field(message, key);
    return hmac_sha256(secret_, message + value);
  }
  [[nodiscard]] std::string contents(const std::string& key, const std::string& value) const {
    auto bytes = tag(key, value);
    append_field(bytes, key);
    return bytes + value;
  }
  /// Key and value; none where there is no such file, or it is not what this store has written.
  [[nodiscard]] std::optional<std::pair<std::string, std::string>> read(
      const std::string& path) const {
    if (::access(path.c_str(), R_OK) != 0) return std::nullopt;
    std::string bytes;
    try {
      const OpenFile file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      if (file.size() > longest_value_bytes + longest_key_bytes + 64) return std::nullopt;
      bytes.resize(file.size());
      file.read(0, std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    } catch (const Error&) {  // removed meanwhile, or no file
      return std::nullopt;
    }
    FieldReader fields(bytes);
    const auto found = fields.bytes(hmac_bytes);
    auto key = fields.field();
    if (!found || !key) return std::nullopt;
    auto value = bytes.substr(hmac_bytes + 4 + key->size());
    if (!equal_in_constant_time(*found, tag(*key, value))) return std::nullopt;
    return std::pair(std::move(*key), std::move(value));
  }

  std::string folder_;
  std::string scope_;
  std::string secret_;
  bool removes_ = false;
};

}  // namespace dhp
