// The exchange of state between ranks, from any partition to any other.
#include <dhp/cpu.hpp>
#include <dhp/train/state_exchange.hpp>
#include <tests/comm/ranks.hpp>

namespace {

/// A piece with memory of its own. The element at place k of tensor t is 1000 t + k.
struct Kept {
  Piece piece;
  std::vector<float> values;
  [[nodiscard]] HeldPiece<Cpu> held() {
    return {piece, {reinterpret_cast<std::byte*>(values.data()), DType::f32, Shape{piece.count()}}};
  }
  [[nodiscard]] std::vector<float> expected() const {
    const auto tensor = static_cast<float>(piece.name.back() - '0');
    std::vector<float> wanted;
    for (detail::Extents runs(piece); !runs.done(); runs.next())
      for (std::int64_t k = 0; k < runs.now().count; ++k)
        wanted.push_back(1000 * tensor + static_cast<float>(runs.now().whole + k));
    return wanted;
  }
};

/// Splits a tensor into `parts` along `dim`, like a tensor axis, and each part into `shares` ranges. Returns one range.
Kept cut(int tensor, int dim, int parts, int part, int shares, int share) {
  Kept kept;
  kept.piece = {.name = concat("t", tensor), .shape = {6, 4 + 3 * tensor}};
  if (parts > 1) {
    kept.piece.split_dim = dim;
    kept.piece.part = part_of(kept.piece.shape[dim], parts, part);
  }
  kept.piece.range = part_of(kept.piece.box().count(), shares, share);
  return kept;
}

constexpr int tensors = 3;

/// The partition of a layout: rank r has share r / parts of part r % parts.
struct Cut {
  int dim, parts, shares;
};
std::vector<Kept> kept_by(const Cut& how, int rank) {
  std::vector<Kept> kept;
  for (int tensor = 0; tensor < tensors; ++tensor)
    kept.push_back(cut(tensor, how.dim, how.parts, rank % how.parts, how.shares,
                       rank / how.parts % how.shares));
  return kept;
}
std::vector<HeldPiece<Cpu>> held(std::vector<Kept>& all) {
  std::vector<HeldPiece<Cpu>> pieces;
  for (auto& each : all) pieces.push_back(each.held());
  return pieces;
}

}  // namespace

TEST_CASE("state exchange: any partition becomes any other, and new ranks get their state") {
  const Cut cuts[] = {{0, 1, 1}, {0, 2, 1}, {1, 2, 1}, {0, 1, 3}, {1, 2, 2}, {1, 3, 1}};
  for (const auto& before : cuts)
    for (const auto& after : cuts)
      for (const int empty : {0, 1}) {  // the first ranks have nothing
        const int ranks =
            std::max(before.parts * before.shares + empty, after.parts * after.shares);
        const auto wrong = on_ranks(ranks, [&](Comm<Cpu>& world, Cpu& dev) {
          auto old =
              world.rank() < empty ? std::vector<Kept>() : kept_by(before, world.rank() - empty);
          for (auto& each : old) each.values = each.expected();
          auto now = kept_by(after, world.rank());
          for (auto& each : now) each.values.assign(each.expected().size(), -1);
          const auto exchanged = StateExchange<Cpu>::run(dev, world, held(old), held(now));
          const auto& missing = exchanged.missing;
          int bad = static_cast<int>(missing.size());
          // If the partition does not change, nothing moves.
          if (&before == &after && empty == 0) bad += exchanged.moved_bytes == 0 ? 0 : 1;
          for (const auto& each : now) bad += each.values != each.expected() ? 1 : 0;
          return bad;
        });
        for (const int bad : wrong) CHECK(bad == 0);
      }
}

TEST_CASE("state exchange: missing state is named on all ranks") {
  const auto found = on_ranks(3, [&](Comm<Cpu>& world, Cpu& dev) {
    auto old = kept_by({0, 1, 3}, world.rank());
    if (world.rank() == 1) old.pop_back();
    for (auto& each : old) each.values = each.expected();
    auto now = kept_by({0, 1, 1}, world.rank());
    for (auto& each : now) each.values.assign(each.expected().size(), -1);
    return StateExchange<Cpu>::run(dev, world, held(old),
                                   world.rank() == 0 ? held(now) : std::vector<HeldPiece<Cpu>>())
        .missing;
  });
  for (const auto& missing : found) CHECK(missing == std::set<std::string>{"t2"});
}

TEST_CASE("state exchange: large pieces come from all ranks that have them") {
  constexpr std::int64_t count = 3 << 18;  // 3 MiB
  const auto sent = on_ranks(4, [&](Comm<Cpu>& world, Cpu& dev) {
    Kept kept{{.name = "t0", .shape = {count}, .range = {0, count}}, {}};
    std::vector<HeldPiece<Cpu>> own, needed;
    kept.values.assign(count, static_cast<float>(world.rank()));
    (world.rank() == 0 ? needed : own).push_back(kept.held());
    const auto exchanged = StateExchange<Cpu>::run(dev, world, own, needed);
    CHECK(exchanged.moved_bytes == count * sizeof(float));
    return std::set<float>(kept.values.begin(), kept.values.end());
  });
  CHECK(sent[0] == std::set<float>{1, 2, 3});
}
