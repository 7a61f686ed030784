// Scripts that a tier runs while calls fail or the process is killed, and the check afterwards that
// every promise was kept: for storage_fault_test.cc and storage_kill_test.cc.
//
// A script tells what it was promised as events, one line each, before its next step:
//   +NAME  acked: must be there, whole     ?NAME  being erased: either way
//   -NAME  erased: must be gone            P, R N  profile there, model record at least N
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "storage/ssd_tier.h"
#include "tests/soak.h"
#include "tests/storage_testing.h"

namespace kv::testing {

class Script {
 public:
  enum class Kind {
    fresh,    ///< a new directory: two batches, records, a touch, an erase, a read
    restart,  ///< a used directory with a damaged and a stale file: reads, erases, puts again
    rebuild,  ///< the same without its catalog, and a limit that the puts reach; some files are
              ///< read between the puts
  };
  /// A script on a plain or a sealed directory; sealed ones at every so many-th call only, but in a
  /// soak.
  struct Case {
    Kind kind;
    bool sealed;
    uint64_t stride;
    uint64_t step() const { return soaked_stride(stride); }
  };
  static constexpr Case kCases[] = {{Kind::fresh, false, 1},
                                    {Kind::restart, false, 1},
                                    {Kind::rebuild, false, 1},
                                    {Kind::fresh, true, 23},
                                    {Kind::restart, true, 23},
                                    {Kind::rebuild, true, 23}};
  using Events = std::vector<std::string>;
  using Tell = std::function<void(const std::string& event)>;

  explicit Script(const Case& which)
      : kind_(which.kind), key_(which.sealed ? sample_key(1) : nullptr) {
    std::mt19937_64 rng(7);
    first_ = sample_chain(rng, 4);
    first_.push_back(raw_image(sample_supplement(rng, first_[3].header, 1, 60, 64)));
    second_ = sample_chain(rng, 22);
    second_.push_back(raw_image(sample_snapshot(rng, second_[2].header, 1)));
  }

  /// What lies in the directory before the script: made without faults.
  void prepare(const std::string& directory, const Tell& tell) {
    if (kind_ == Kind::fresh) return;
    auto tier = SsdTier::open(directory, options(nullptr));
    KV_CHECK(tier.ok() && (*tier)->recover().ok());
    put(**tier, first_, Durability::durable, tell);
    KV_CHECK((*tier)->put_profile(sample_profile(1)).ok());
    KV_CHECK((*tier)->put_model_record(sample_record(1)).ok());
    tell("P");
    tell("R 1");
    (*tier).reset();
    std::string path = directory + "/" + relative_path(damaged());
    flip_byte(path, static_cast<long>(std::filesystem::file_size(path)) - 1);  // in its payload
    std::ofstream(directory + "/tmp/5.tmp") << std::string(5000, 'x');
    if (kind_ == Kind::rebuild) std::filesystem::remove(directory + "/catalog.db");
  }

  /// Runs to the end or to the first step that can't go on.
  void run(const std::string& directory, Files* files, const Tell& tell,
           const std::function<void()>& heal = nullptr) {
    auto opened = SsdTier::open(directory, options(files));
    if (!opened.ok()) return;
    SsdTier& tier = **opened;
    auto recovered = tier.recover();
    if (!recovered.ok()) return;
    if (kind_ == Kind::fresh) put(tier, first_, Durability::spilled, tell);
    if (tier.put_profile(sample_profile(1)).ok()) tell("P");
    for (uint64_t serial : {2, 3}) {
      if (tier.put_model_record(sample_record(serial)).ok()) tell("R " + std::to_string(serial));
    }
    put(tier, second_, Durability::durable, tell);
    while (recovered->unread > 0) {
      Recovery more = tier.adopt_more(1);
      recovered->unread = more.unread;
      recovered->unreadable += more.unreadable;
    }
    std::vector<ObjectName> used = {first_[0].header.name};
    tier.touch(used);
    read(tier, first_[0]);
    if (kind_ != Kind::fresh) {
      (void)tier.read(damaged());
      put(tier, {first_[1]}, Durability::spilled, tell);  // anew, or there already
    }
    if (kind_ == Kind::rebuild) put(tier, large(), Durability::spilled, tell);
    erase(tier, {first_[4].header.name, first_[3].header.name}, tell);
    (void)tier.checkpoint();
    if (heal) {
      heal();
      // In the small directory what failed to be unlinked may have taken the room.
      if (kind_ != Kind::rebuild) put_all(tier, second_, Durability::durable);
      put(tier, second_, Durability::durable, tell);
      read(tier, second_[0]);
    }
    if (recovered->unreadable > 0) return;  // sizes that no one could tell
    SsdStats stats = tier.stats();
    EXPECT_GE(stats.used_bytes + stats.reserved_bytes, du(directory)) << "the ledger undercounts";
  }

  /// After a restart on the real file system: everything promised is there, whole; nothing else is.
  void check(const std::string& directory, const Events& events) {
    Recovery found;
    auto tier = reopen(directory, found);
    ASSERT_TRUE(tier);
    std::map<std::string, const FileImage*> possible;
    for (const auto* images :
         std::initializer_list<const std::vector<FileImage>*>{&first_, &second_, &large()}) {
      for (const auto& image : *images) possible[file_name(image.header.name)] = &image;
    }
    std::set<std::string> present;
    for (const auto& object : found.objects) {
      std::string name = file_name(object.header.name);
      ASSERT_TRUE(possible.contains(name)) << "never stored";
      auto image = tier->read(object.header.name);
      if (kind_ != Kind::fresh && object.header.name == damaged() && !image.ok()) continue;
      ASSERT_TRUE(image.ok()) << image.status().to_string();
      expect_same(*possible[name], *image);
      EXPECT_EQ(object.header.tokens, image->header.tokens);
      present.insert(name);
    }
    check_events(events, present, found);
    EXPECT_TRUE(std::filesystem::is_empty(directory + "/tmp"));
    EXPECT_EQ(tier->stats().used_bytes, du(directory));
    size_t objects = found.objects.size() - tier->stats().corruptions;
    tier.reset();
    Recovery again;
    tier = reopen(directory, again);
    EXPECT_EQ(again.objects.size(), objects);
    EXPECT_EQ(again.adopted + again.rows_dropped + again.temps_removed, 0u) << "recovery settles";
  }

  /// Calls that the script makes when nothing fails.
  uint64_t count_calls() {
    TempDir dir(true);
    FaultFiles files;
    prepare(dir.store(), [](const std::string&) {});
    run(dir.store(), &files, [](const std::string&) {});
    return files.calls;
  }

  SsdOptions options(Files* files) const {
    auto options = small_options(files, kind_ == Kind::rebuild ? kMinLimitBytes : 64 << 20);
    if (kind_ == Kind::rebuild && files != nullptr) options.adopt_at_start = 2;
    options.key = key_;
    return options;
  }

 private:
  ObjectName damaged() const { return first_[1].header.name; }
  /// More than kMinLimitBytes, made once.
  static const std::vector<FileImage>& large() {
    static const std::vector<FileImage> images = [] {
      std::mt19937_64 rng(8);
      return sample_chain(rng, 6, 1 << 13);  // 1 MiB each
    }();
    return images;
  }

  static void put(SsdTier& tier, const std::vector<FileImage>& images, Durability level,
                  const Tell& tell) {
    auto results = tier.put(images, level);
    for (size_t i = 0; i < images.size(); ++i) {
      if (results[i].reached != Durability::none && !results[i].existed) {
        tell("+" + file_name(images[i].header.name));
      }
      EXPECT_EQ(results[i].status.ok(), results[i].reached >= level);
    }
  }
  static void read(SsdTier& tier, const FileImage& image) {
    auto got = tier.read(image.header.name);
    if (got.ok()) expect_same(image, *got);
  }
  static void erase(SsdTier& tier, const std::vector<ObjectName>& names, const Tell& tell) {
    for (const auto& name : names) tell("?" + file_name(name));
    if (!tier.erase(names).ok()) return;
    for (const auto& name : names) tell("-" + file_name(name));
  }
  std::unique_ptr<SsdTier> reopen(const std::string& directory, Recovery& found) {
    auto tier = SsdTier::open(directory, options(nullptr));
    EXPECT_TRUE(tier.ok()) << tier.status().to_string();
    if (!tier.ok()) return nullptr;
    auto recovered = (*tier)->recover();
    EXPECT_TRUE(recovered.ok()) << recovered.status().to_string();
    if (!recovered.ok()) return nullptr;
    found = std::move(*recovered);
    EXPECT_EQ(found.quarantined, 0u);
    return std::move(*tier);
  }
  void check_events(const Events& events, const std::set<std::string>& present,
                    const Recovery& found) {
    std::map<std::string, char> last;
    uint64_t serial = 0;
    for (const auto& event : events) {
      if (event == "P") {
        EXPECT_EQ(found.profiles.size(), 1u);
      } else if (event[0] == 'R') {
        serial = std::stoull(event.substr(2));
      } else {
        last[event.substr(1)] = event[0];
      }
    }
    if (kind_ != Kind::fresh) last.erase(file_name(damaged()));  // lost to what happened before
    for (const auto& [name, state] : last) {
      if (state == '+') {
        EXPECT_TRUE(present.contains(name)) << "lost " << name;
      }
      if (state == '-') {
        EXPECT_FALSE(present.contains(name)) << "came back: " << name;
      }
    }
    uint64_t given = found.models.empty() ? 0 : found.models[0].serial;
    EXPECT_GE(given, serial);
  }

  Kind kind_;
  std::shared_ptr<const SealKey> key_;
  std::vector<FileImage> first_, second_;
};

}  // namespace kv::testing
