// TextCache: a corpus as tokens in a safetensors file. The first process that needs the file makes it; other processes
// and later runs map it. The file lists its sources and has a checksum. It is made anew if it is damaged or the sources
// changed.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/core/poll_until.hpp>
#include <dhp/core/system_error.hpp>
#include <dhp/train/file_lock.hpp>
#include <dhp/train/safetensors.hpp>

#include "documents.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// A file's bytes in memory. A page is read when it is first touched, and the processes of a host share it.
class MappedFile : dhp::detail::NonCopyable {
 public:
  /// Maps a file that is not empty. Replacing it under its name does no harm, but truncating it ends this process.
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status {};
    auto* const space = ::fstat(file, &status) != 0
                            ? MAP_FAILED
                            : ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ,
                                     MAP_SHARED, file, 0);
    if (file >= 0) ::close(file);
    dhp::detail::check_system(space != MAP_FAILED, "cannot map ", path);
    bytes_ = {static_cast<const std::byte*>(space), static_cast<std::size_t>(status.st_size)};
  }
  ~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

struct TokenizedText {
  std::string words;  ///< contents of vocab.txt, or of tokenizer.json
  std::shared_ptr<const TokenText> tokens;
};

struct TextCacheOptions {
  std::string folder;
  std::string name;  ///< equal for the same corpus and rules, so that stale files are replaced
  nlohmann::json made_of{};
  std::function<void(const std::string&)> log = [](const std::string&) {};
  double wait_s = 3600;  ///< limit for waiting on another process that makes the file
};

/// Returns a fingerprint of files: names, sizes and modification times.
[[nodiscard]] inline nlohmann::json state_of_files(const std::vector<std::string>& paths) {
  auto state = nlohmann::json::array();
  for (const auto& path : paths) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    const auto changed = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    state.push_back({std::filesystem::absolute(path).string(), size, changed});
  }
  return state;
}

/// Returns JSON as text. U+FFFD replaces bytes that are not UTF-8, because a file's name may have any bytes.
[[nodiscard]] inline std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class TextCache {
 public:
  explicit TextCache(TextCacheOptions options)
      : options_(std::move(options)),
        path_(dhp::concat(options_.folder, "/", options_.name, ".tokens")) {
    options_.made_of = nlohmann::json::parse(json_text(options_.made_of));
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Reads the tokens from the file. If it is missing, damaged or of other sources, calls make() and writes the file; a
  /// failed write is only a warning.
  [[nodiscard]] TokenizedText get(const std::function<TokenizedText()>& make) const {
    if (auto found = read(false)) return *std::move(found);
    bool waited = false;
    auto lock = locked(waited);
    if (lock && waited) {  // another process made it; all read it in parallel
      lock.reset();
      if (auto found = read(false)) return *std::move(found);
      lock = locked(waited);
    }
    if (lock)
      if (auto found = read(true)) return *std::move(found);
    auto result = make();
    const bool stored = lock && store(result);
    lock.reset();
    if (stored)
      if (auto found = read(false)) return *std::move(found);  // all processes share its pages
    return result;
  }

 private:
  /// Returns nullopt if the file is missing, damaged, or made of other sources.
  [[nodiscard]] std::optional<TokenizedText> read(bool prints) const {
    if (!dhp::detail::is_there(path_)) return std::nullopt;
    try {
      return parsed();
    } catch (const dhp::Error& error) {
      if (prints) options_.log(dhp::concat("warning: ", error.sentence(), "; it is made anew"));
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<TokenizedText> parsed() const {
    const dhp::SafeTensors stored(path_);
    const auto file = std::make_shared<const MappedFile>(path_);
    std::uint64_t size = 0;
    for (const auto& [name, tensor] : stored.tensors()) size = std::max(size, tensor.last);
    dhp::check(size <= file->bytes().size(), path_, " is damaged: it is cut off");
    const auto all = file->bytes().last(static_cast<std::size_t>(size));
    std::uint32_t sum = 0;
    const auto take = [&]<class T>(const char* name, const T*) {
      const auto* const tensor = stored.find(name);
      dhp::check(tensor != nullptr, path_, " is damaged: it has no ", name);
      const auto bytes = all.subspan(static_cast<std::size_t>(tensor->first),
                                     static_cast<std::size_t>(tensor->last - tensor->first));
      sum = dhp::detail::crc32c(bytes, sum);
      return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
    };
    constexpr const std::int64_t* places = nullptr;
    constexpr const char* letters = nullptr;
    const auto documents = take("documents", places), sentences = take("sentences", places);
    const auto items = take("tokens", static_cast<const std::int32_t*>(nullptr));
    const auto words = take("words", letters), made_of = take("made_of", letters);
    const auto checksum = dhp::concat(sum);
    dhp::check(std::ranges::equal(take("checksum", letters), checksum), path_,
               " is damaged: its tokens have another checksum");
    if (!std::ranges::equal(made_of, options_.made_of.dump())) return std::nullopt;
    const std::shared_ptr<const std::byte> keeper(file, file->bytes().data());
    return TokenizedText{
        {words.begin(), words.end()},
        std::make_shared<TokenText>(TokenText::Arrays{items, sentences, documents}, keeper)};
  }

  /// Writes the file; returns whether it exists now.
  [[nodiscard]] bool store(const TokenizedText& result) const {
    const auto arrays = result.tokens->arrays();
    dhp::SafeTensorsWriter writer;
    std::uint32_t sum = 0;
    const auto add = [&](const char* name, dhp::DType type, auto values) {
      const auto bytes = std::as_bytes(values);
      sum = dhp::detail::crc32c(bytes, sum);
      writer.add(name, type, {std::ssize(values)},
                 [bytes](dhp::OpenFile& file) { file.write(bytes); });
    };
    add("documents", dhp::DType::i64, arrays.documents);
    add("sentences", dhp::DType::i64, arrays.sentences);
    add("tokens", dhp::DType::i32, arrays.items);
    const auto made_of = options_.made_of.dump();
    add("words", dhp::DType::u8, std::span(result.words));
    add("made_of", dhp::DType::u8, std::span(made_of));
    const auto checksum = dhp::concat(sum);
    add("checksum", dhp::DType::u8, std::span(checksum));
    try {
      writer.write(path_);
      return true;
    } catch (const dhp::Error& error) {
      warn(error.sentence());
      return false;
    }
  }

  /// Returns null, after a warning, if the file cannot be locked.
  [[nodiscard]] std::unique_ptr<dhp::detail::FileLock> locked(bool& waited) const {
    try {
      std::error_code error;
      std::filesystem::create_directories(options_.folder, error);
      dhp::check(!error, "cannot make the directory ", options_.folder, ": ", error.message());
      auto lock = std::make_unique<dhp::detail::FileLock>(path_ + ".lock");
      const auto taken = [&] {
        const bool mine = lock->try_lock();
        if (!mine && !std::exchange(waited, true))
          options_.log(dhp::concat("waits for another process, which is making ", path_));
        return mine;
      };
      if (dhp::detail::poll_until(taken, options_.wait_s)) return lock;
      warn(dhp::concat("another process has been making ", path_, " for ", options_.wait_s, " s"));
    } catch (const dhp::Error& error) {
      warn(error.sentence());
    }
    return nullptr;
  }
  void warn(const std::string& why) const {
    options_.log(dhp::concat("warning: ", why, "; the text is tokenized without a cache"));
  }

  TextCacheOptions options_;
  std::string path_;
};

/// Returns make(), the tokens of these files by these rules, and caches them in `folder` unless it is empty. prints:
/// prints warnings to standard error.
[[nodiscard]] inline TokenizedText cached_text(const std::string& folder,
                                               const std::vector<std::string>& files,
                                               const nlohmann::json& rules, bool prints,
                                               const std::function<TokenizedText()>& make) {
  if (folder.empty()) return make();
  const TextCache cache({.folder = folder,
                         .name = dhp::detail::fnv1a_text(json_text(rules)),
                         .made_of = {{"rules", rules}, {"files", state_of_files(files)}},
                         .log = [prints](const std::string& sentence) {
                           if (prints) std::cerr << sentence + "\n";
                         }});
  return cache.get(make);
}

}  // namespace examples
