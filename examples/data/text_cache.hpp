// TextCache: a corpus as tokens in a file. The first process that needs the file makes it; other processes and later
// runs map it. The file lists its sources and has checksums. It is made anew if it is damaged or the sources changed.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/core/hash.hpp>
#include <dhp/core/system_error.hpp>
#include <dhp/train/file_lock.hpp>

#include "documents.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace examples {

/// A file's bytes in memory. A page is read when it is first touched, and the processes of a host share it.
class MappedFile : dhp::detail::NonCopyable {
 public:
  /// Throws if the file is missing or empty. Replacing the file under its name does no harm, but truncating it ends
  /// this process.
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    dhp::detail::check_system(file >= 0, "cannot open ", path);
    struct stat status {};
    const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    auto* const space = known ? ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ,
                                       MAP_SHARED, file, 0)
                              : MAP_FAILED;
    ::close(file);
    dhp::check(known, path, " is no file, or an empty one");
    dhp::detail::check_system(space != MAP_FAILED, "cannot map ", path);
    bytes_ = {static_cast<const std::byte*>(space), static_cast<std::size_t>(status.st_size)};
  }
  ~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

struct TokenisedText {
  std::string words;  ///< contents of vocab.txt, or of tokenizer.json
  std::shared_ptr<const TokenText> tokens;
};

struct TextCacheOptions {
  std::string folder;
  std::string name;  ///< equal for the same corpus and rules, so that stale files are replaced
  nlohmann::json made_of{};
  std::function<void(const std::string&)> say = [](const std::string&) {};
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

class TextCache {
 public:
  explicit TextCache(TextCacheOptions options)
      : options_(std::move(options)),
        path_(dhp::concat(options_.folder, "/", options_.name, ".tokens")) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  /// Reads the tokens from the file. If it is missing, damaged or of other sources, calls make() and writes the file; a
  /// failed write is only a warning.
  [[nodiscard]] TokenisedText get(const std::function<TokenisedText()>& make) const {
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
    auto made = make();
    const bool stored = lock && store(made);
    lock.reset();
    if (stored)
      if (auto found = read(false)) return *std::move(found);  // all processes share its pages
    return made;
  }

 private:
  static constexpr std::string_view magic = "dhptext1";
  static constexpr std::size_t before_header = 24;  // magic, header length and checksum

  /// Returns nullopt if the file is missing, damaged, or made of other sources.
  [[nodiscard]] std::optional<TokenisedText> read(bool speaks) const {
    std::error_code unknown;
    if (!std::filesystem::exists(path_, unknown)) return std::nullopt;
    try {
      return parse(std::make_shared<const MappedFile>(path_));
    } catch (const dhp::Error& error) {
      if (speaks) options_.say(dhp::concat("warning: ", error.sentence(), "; it is made anew"));
    } catch (const nlohmann::json::exception&) {
      if (speaks)
        options_.say(dhp::concat("warning: ", path_, " is damaged: its header; it is made anew"));
    }
    return std::nullopt;
  }

  [[nodiscard]] std::optional<TokenisedText> parse(
      const std::shared_ptr<const MappedFile>& file) const {
    auto rest = file->bytes();
    const auto take = [&]<class T>(std::uint64_t count, const T*) {
      dhp::check(count <= rest.size() / sizeof(T), path_, " is damaged: it is cut off");
      const std::span taken(reinterpret_cast<const T*>(rest.data()),
                            static_cast<std::size_t>(count));
      rest = rest.subspan(taken.size_bytes());
      return taken;
    };
    constexpr const char* letters = nullptr;
    constexpr const std::uint64_t* numbers = nullptr;
    constexpr const std::int64_t* places = nullptr;
    const auto start = take(magic.size(), letters);
    dhp::check(std::string_view(start.data(), start.size()) == magic, path_,
               " is damaged: it does not begin as a text cache does");
    const auto head = take(2, numbers);
    const auto text = take(head[0], letters);
    dhp::check(dhp::detail::crc32c(std::as_bytes(text)) == head[1], path_,
               " is damaged: its header has another checksum");
    const auto header = nlohmann::json::parse(text.begin(), text.end());
    if (header.at("made_of") != options_.made_of) return std::nullopt;
    dhp::check(dhp::detail::crc32c(rest) == header.at("crc32c").get<std::uint32_t>(), path_,
               " is damaged: its tokens have another checksum");
    const auto count = [&](const char* name) { return header.at(name).get<std::uint64_t>(); };
    const auto documents = take(count("documents"), places);
    const auto sentences = take(count("sentences"), places);
    const auto items = take(count("tokens"), static_cast<const std::int32_t*>(nullptr));
    std::string words(reinterpret_cast<const char*>(rest.data()), rest.size());
    const std::shared_ptr<const std::byte> keeper(file, file->bytes().data());
    return TokenisedText{
        std::move(words),
        std::make_shared<TokenText>(TokenText::Arrays{items, sentences, documents}, keeper)};
  }

  /// Writes the file; returns whether it exists now.
  [[nodiscard]] bool store(const TokenisedText& made) const {
    const auto arrays = made.tokens->arrays();
    const std::span<const std::byte> parts[] = {
        std::as_bytes(arrays.documents), std::as_bytes(arrays.sentences),
        std::as_bytes(arrays.items), std::as_bytes(std::span(made.words))};
    std::uint32_t sum = 0;
    for (const auto part : parts) sum = dhp::detail::crc32c(part, sum);
    auto header = nlohmann::json{
        {"made_of", options_.made_of},
        {"documents", arrays.documents.size()},
        {"sentences", arrays.sentences.size()},
        {"tokens", arrays.items.size()},
        {"crc32c",
         sum}}.dump();
    header.resize((before_header + header.size() + 7) / 8 * 8 - before_header, ' ');
    const std::uint64_t head[] = {header.size(),
                                  dhp::detail::crc32c(std::as_bytes(std::span(header)))};
    try {
      dhp::replace_file(path_, [&](dhp::OpenFile& file) {
        file.write(magic);
        file.write(std::as_bytes(std::span(head)));
        file.write(header);
        for (const auto part : parts) file.write(part);
      });
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
      if (wait_for(*lock, waited)) return lock;
      warn(dhp::concat("another process has been making ", path_, " for ", options_.wait_s, " s"));
    } catch (const dhp::Error& error) {
      warn(error.sentence());
    }
    return nullptr;
  }
  [[nodiscard]] bool wait_for(dhp::detail::FileLock& lock, bool& waited) const {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds pause(50);
    const auto began = Clock::now();
    while (!lock.try_lock()) {
      const std::chrono::duration<double> since = Clock::now() - began;
      if (since.count() >= options_.wait_s) return false;
      if (!std::exchange(waited, true))
        options_.say(dhp::concat("waits for another process, which is making ", path_));
      std::this_thread::sleep_for(pause);
    }
    return true;
  }
  void warn(const std::string& why) const {
    options_.say(dhp::concat("warning: ", why, "; the text is tokenized without a cache"));
  }

  TextCacheOptions options_;
  std::string path_;
};

/// Returns make(), the tokens of these files by these rules, and caches them in `folder` unless it is empty. speaks:
/// prints warnings to standard error.
[[nodiscard]] inline TokenisedText cached_text(const std::string& folder,
                                               const std::vector<std::string>& files,
                                               const nlohmann::json& rules, bool speaks,
                                               const std::function<TokenisedText()>& make) {
  if (folder.empty()) return make();
  const TextCache cache({.folder = folder,
                         .name = dhp::detail::fnv1a_text(rules.dump()),
                         .made_of = {{"rules", rules}, {"files", state_of_files(files)}},
                         .say = [speaks](const std::string& sentence) {
                           if (speaks) std::cerr << sentence + "\n";
                         }});
  return cache.get(make);
}

}  // namespace examples
