// Scripts that a tier runs while calls fail or the process is killed, and the check afterwards that
// every promise was kept: for storage_fault_test.cc and storage_kill_test.cc.
//
// A script tells what it was promised as events, one line each, before its next step:
//   +NAME  acked: must be there, whole     ?NAME  being erased: either way
//   -NAME  erased: must be gone            P, R N  profile there, model record at least N
//   ?P, -P, ?R, -R  the profile and the model records, being erased and gone
//   S      wiped: no token of the first chain in any byte
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
#include "tests/support/soak.h"
#include "tests/support/storage_testing.h"

namespace kv::testing {

class Script {
 public:
  enum class Kind {
    fresh,    ///< a new directory: two batches, records, a touch, an erase, a read
    restart,  ///< a used directory with a damaged and a stale file: reads, erases, puts again
    rebuild,  ///< the same without its catalog, and a limit that the puts reach; some files are
              ///< read between the puts
    purge,    ///< a used directory: one chain, the profile and the model records go, every trace
  };
  /// A script on a plain or a sealed directory; sealed ones at every so many-th call only, but in a
  /// soak.
  struct Case {
    Kind kind;
    bool sealed;
    uint64_t stride;
    uint64_t step() const { return soaked_stride(stride); }
    /// Recoveries from a torn purge differ little from those from other scripts.
    uint64_t recovery_step() const { return step() * (kind == Kind::purge ? soaked_stride(5) : 1); }
    /// Calls that it makes: three scripts have 1,250, for 5,000 injected errors; a purge is short.
    uint64_t least_calls() const { return kind == Kind::purge ? 200 : 417; }
  };
  static constexpr Case kCases[] = {{Kind::fresh, false, 1},   {Kind::restart, false, 1},
                                    {Kind::rebuild, false, 1}, {Kind::purge, false, 1},
                                    {Kind::fresh, true, 23},   {Kind::restart, true, 23},
                                    {Kind::rebuild, true, 23}, {Kind::purge, true, 23}};
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
    if (kind_ == Kind::purge) put(**tier, second_, Durability::durable, tell);
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
    if (kind_ == Kind::purge) return run_purge(tier, tell, heal);
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

  void run_purge(SsdTier& tier, const Tell& tell, const std::function<void()>& heal) {
    (void)tier.read(damaged());  // to quarantine
    bool done = purge(tier, tell);
    if (heal) {
      heal();
      if (!done) purge(tier, tell);
    }
    read(tier, second_[0]);
  }

  /// After a restart on the real file system: everything promised is there, whole; nothing else is.
  void check(const std::string& directory, const Events& events) {
    if (std::count(events.begin(), events.end(), "S") > 0) expect_no_trace(directory);
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
  static bool erase(SsdTier& tier, const std::vector<ObjectName>& names, const Tell& tell) {
    for (const auto& name : names) tell("?" + file_name(name));
    if (!tier.erase(names).ok()) return false;
    for (const auto& name : names) tell("-" + file_name(name));
    return true;
  }
  /// Whether all of it was said to be done.
  bool purge(SsdTier& tier, const Tell& tell) {
    std::vector<ObjectName> names;
    for (const auto& image : first_) names.push_back(image.header.name);
    bool done = erase(tier, names, tell);
    tell("?R");
    Status records = tier.erase_model_records(model_id("tenant", sample_realm().fingerprint));
    if (records.ok()) tell("-R");
    tell("?P");
    Status profile = tier.erase_profile(sample_profile(1).id());
    if (profile.ok()) tell("-P");
    bool wiped = tier.wipe().ok();
    if (done && wiped) tell("S");
    return done && records.ok() && profile.ok() && wiped;
  }
  void expect_no_trace(const std::string& directory) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      for (const auto& image : first_) {
        const auto& tokens = image.header.tokens;
        std::string text(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4);
        EXPECT_EQ(bytes.find(text), bytes.npos) << entry.path();
      }
    }
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
      if (event == "S") continue;
      bool record = event[0] == 'P' || event[0] == 'R';
      if (event[0] == 'R') serial = std::stoull(event.substr(2));
      last[record ? event.substr(0, 1) : event.substr(1)] = record ? '+' : event[0];
    }
    auto profile = last.extract("P"), record = last.extract("R");
    check_record(profile ? profile.mapped() : '?', found.profiles.size());
    check_record(record ? record.mapped() : '?', found.models.size());
    uint64_t given = found.models.empty() ? UINT64_MAX : found.models[0].serial;
    EXPECT_GE(given, serial);
    if (kind_ != Kind::fresh) last.erase(file_name(damaged()));  // lost to what happened before
    for (const auto& [name, state] : last) {
      if (state == '+') {
        EXPECT_TRUE(present.contains(name)) << "lost " << name;
      }
      if (state == '-') {
        EXPECT_FALSE(present.contains(name)) << "came back: " << name;
      }
    }
  }
  static void check_record(char state, size_t there) {
    if (state == '+') {
      EXPECT_EQ(there, 1u) << "profile or model record";
    }
    if (state == '-') {
      EXPECT_EQ(there, 0u) << "profile or model record";
    }
  }

  Kind kind_;
  std::shared_ptr<const SealKey> key_;
  std::vector<FileImage> first_, second_;
};

}  // namespace kv::testing
