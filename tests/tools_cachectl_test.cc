// cachectl: the real program on real directories, whole and damaged in several ways, plain and
// sealed. Every run but those that mend must leave the directory as it found it.
#include "proto/socket_client.h"
#include "tests/support/cachectl_store.h"
#include "tests/support/daemon_process.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::AllOf;
using ::testing::Not;

TEST_F(Cachectl, LsShowsLeavesOnlyWithExactBytes) {
  Ran ran = run("ls --json " + store());
  ASSERT_EQ(ran.code, 0) << ran.err;
  json entries = ran.parsed();
  ASSERT_EQ(entries.size(), 2u) << ran.out;
  for (const auto& e : entries) {
    bool tail = e["id"] == hex(tail_);
    EXPECT_TRUE(tail || e["id"] == hex(other_));
    std::vector<const Object*> path = tail ? std::vector<const Object*>{&first_, &second_, &tail_}
                                           : std::vector<const Object*>{&first_, &other_};
    uint64_t bytes = 0;
    for (const Object* o : path) bytes += fs::file_size(this->path(*o));
    uint64_t tokens = tail ? 37 : 32;
    EXPECT_EQ(e["stored_bytes"], bytes);
    EXPECT_EQ(e["fp16_bytes"], tokens * fp16_bytes_per_token(model_));
    EXPECT_DOUBLE_EQ(e["ratio"], static_cast<double>(bytes) /
                                     static_cast<double>(tokens * fp16_bytes_per_token(model_)));
    EXPECT_EQ(e["tokens"], tokens);
    EXPECT_EQ(e["model"], "two-layers");
    EXPECT_EQ(e["namespace"], realm_.ns);
    EXPECT_EQ(e["complete"], true);
  }
}

TEST_F(Cachectl, PeoplesOutputHasNoControlCharactersAndNoTokens) {
  for (const std::string command : {"ls", "ls --blocks", "stats", "verify"}) {
    Ran ran = run(command + " " + store());
    EXPECT_EQ(ran.code, 0) << command << ran.err;
    EXPECT_THAT(ran.out, Not(HasSubstr("\x1b"))) << command;
    EXPECT_THAT(ran.out + run(command + " --json " + store()).out,
                Not(HasSubstr(std::to_string(kSecretToken))));
  }
  EXPECT_THAT(run("ls " + store()).out,
              AllOf(HasSubstr("tenant\\x1b[31m"), HasSubstr(hex(tail_).substr(0, 16))));
}

TEST_F(Cachectl, LsBlocksListsEveryFile) {
  json files = run("ls --blocks --json " + store()).parsed();
  ASSERT_EQ(files.size(), 6u);  // four objects, profile, model record
  std::map<std::string, int> kinds;
  for (const auto& f : files) ++kinds[f["kind"]];
  EXPECT_EQ(kinds["block"], 3);
  EXPECT_EQ(kinds["tail"], 1);
  EXPECT_EQ(kinds["profile"], 1);
}

TEST_F(Cachectl, ShowGivesIdentityPathPlanesAndCoding) {
  Ran ran = run("show --json " + store() + " " + hex(second_).substr(0, 20));
  ASSERT_EQ(ran.code, 0) << ran.err;
  json shown = ran.parsed();
  EXPECT_EQ(shown["id"], hex(second_));
  EXPECT_EQ(shown["parent"], hex(first_));
  EXPECT_EQ(shown["path"][0]["id"], hex(first_));
  EXPECT_EQ(shown["first_token"], 16);
  EXPECT_EQ(shown["end_token"], 32);
  EXPECT_EQ(shown["profile"], profile_->id().hex());
  EXPECT_EQ(shown["profile_in_force"], true);
  EXPECT_FALSE(shown.contains("tokens"));
  const json& planes = shown["files"][0]["planes"];
  ASSERT_EQ(planes.size(), second_.planes.size());
  EXPECT_EQ(planes[0]["bits"], 4);
  EXPECT_EQ(planes[0]["heads"], 2);
  EXPECT_EQ(planes[0]["runs"], json::parse(R"([{"form":"codes","rows":16}])"));
  EXPECT_EQ(planes[2]["side"], "other");
  EXPECT_EQ(planes[0]["packing"], "raw");
  EXPECT_EQ(planes[2]["packing"], "split");
  EXPECT_EQ(planes[2]["unpacked_bytes"], second_.planes[2].bytes.size());
  EXPECT_LT(planes[2]["stored_bytes"], planes[2]["unpacked_bytes"]);
  Ran text = run("show " + store() + " " + hex(second_));
  EXPECT_THAT(text.out, HasSubstr("requested tq4, active raw: latent: never coded"));
  EXPECT_THAT(text.out, HasSubstr("layers 0 part 0 full K: requested tq4, active tq4"));
  EXPECT_THAT(text.out, Not(HasSubstr(std::to_string(kSecretToken))));
  EXPECT_THAT(run("show --tokens " + store() + " " + hex(second_)).out,
              HasSubstr(std::to_string(kSecretToken)));
  EXPECT_EQ(run("show --json --tokens " + store() + " " + hex(tail_)).parsed()["tokens"],
            json(tail_.tokens));
}

TEST_F(Cachectl, ShowRefusesAmbiguousAndUnknownIds) {
  while (true) {  // blocks until two begin with the same digit
    Object more = make(first_.name.id, 16, kBlockTokens, ObjectKind::block);
    ASSERT_TRUE(tier_->put(std::vector{packed(more)}, Durability::spilled)[0].status.ok());
    if (hex(more)[0] != hex(first_)[0]) continue;
    Ran ran = run("show " + store() + " " + hex(more).substr(0, 1));
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.err,
                AllOf(HasSubstr("ambiguous"), HasSubstr(hex(more)), HasSubstr(hex(first_))));
    break;
  }
  std::string unknown(64, hex(first_)[63] == '0' ? '1' : '0');
  Ran ran = run("show " + store() + " " + unknown);
  EXPECT_EQ(ran.code, 4);
  EXPECT_EQ(run("show " + store() + " ../../etc").code, 2);
}

TEST_F(Cachectl, StatsAddUp) {
  json stats = run("stats --json " + store()).parsed();
  EXPECT_EQ(stats["kinds"]["block"]["files"], 3);
  EXPECT_EQ(stats["kinds"]["tail"]["file_bytes"], fs::file_size(path(tail_)));
  EXPECT_EQ(stats["directory_bytes"], du(store()));
  ASSERT_EQ(stats["models"].size(), 1u);
  EXPECT_EQ(stats["models"][0]["entries"], 2);
  EXPECT_EQ(stats["models"][0]["tokens"], 16 * 3 + 5);
  EXPECT_EQ(stats["zstd"]["pieces"], zstd_pieces_);
  EXPECT_EQ(stats["split"]["pieces"], split_pieces_);
  EXPECT_LT(stats["split"]["stored_bytes"], stats["split"]["unpacked_bytes"]);
  EXPECT_EQ(stats["damaged_files"], 0);
}

TEST_F(Cachectl, StatsSayWhatIsCodedAndWhatCannotBe) {
  json stats = run("stats --json " + store()).parsed();
  json parts = stats["models"][0]["parts"];
  ASSERT_EQ(parts.size(), 3u) << "K and V of layer 0, the one storage of layer 1";
  EXPECT_EQ(parts[0]["active"], "tq4");
  EXPECT_EQ(parts[2]["kind"], "latent");
  EXPECT_EQ(parts[2]["requested"], "tq4");
  EXPECT_EQ(parts[2]["active"], "raw");
  EXPECT_THAT(run("stats " + store()).out,
              AllOf(HasSubstr("coding of two-layers in tenant\\x1b[31m"),
                    HasSubstr("layers 0 part 0 full K: requested tq4, active tq4"),
                    HasSubstr("layers 1 part 0 latent other: requested tq4, active raw: latent")));
}

TEST_F(Cachectl, VerifyReadsACleanStoreBesideItsOwner) {
  Ran ran = run("verify --deep --json " + store());
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.parsed()["files"], 6);
  EXPECT_EQ(ran.parsed()["unpacked_pieces"], zstd_pieces_ + split_pieces_);
  EXPECT_EQ(ran.parsed()["content_not_checked"], 0);
  EXPECT_EQ(ran.err, "");  // progress is for terminals
}

TEST_F(Cachectl, VerifyNamesAFlippedPayloadByte) {
  std::string bytes = slurp(path(second_));
  bytes[bytes.size() - 3] ^= 1;
  spew(path(second_), bytes);
  expect_damaged(second_, "");
}

TEST_F(Cachectl, VerifyNamesAFlippedHeaderByteAndLsGoesOn) {
  std::string bytes = slurp(path(second_));
  bytes[100] ^= 1;
  spew(path(second_), bytes);
  expect_damaged(second_, "");
  Ran ran = run("ls --json " + store());
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("1 damaged file"));
  for (const auto& e : ran.parsed()) EXPECT_EQ(e["complete"], e["id"] != hex(tail_));
  Ran shown = run("show " + store() + " " + hex(second_));
  EXPECT_EQ(shown.code, 1);
  EXPECT_THAT(shown.err, HasSubstr("damaged: " + relative_path(second_.name)));
}

TEST_F(Cachectl, VerifyNamesATruncatedFile) {
  std::string bytes = slurp(path(tail_));
  for (size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{56}, size_t{1}, size_t{0}}) {
    SCOPED_TRACE(size);
    spew(path(tail_), bytes.substr(0, size));
    expect_damaged(tail_, "");
  }
}

TEST_F(Cachectl, VerifyNamesForeignBytesUnderABlocksName) {
  spew(path(first_), std::string(4096, 'x'));
  expect_damaged(first_, "");
}

TEST_F(Cachectl, VerifyNamesAGoodFileUnderAnothersName) {
  spew(path(second_), slurp(path(other_)));
  expect_damaged(second_, "another object");
}

TEST_F(Cachectl, VerifyListsStrangersWithoutCallingThemDamage) {
  spew(store() + "/0/notes.txt", "hello");
  Ran ran = run("verify " + store());
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("foreign  0/notes.txt"));
}

/// `image` under `o`'s name, its checksums right: only a look at the content can tell.
TEST_F(Cachectl, VerifyUnpacksEveryPiece) {
  FileImage image = packed(second_);
  auto piece = std::find_if(image.pieces.begin(), image.pieces.end(),
                            [](const Piece& p) { return p.packing == Packing::split; });
  ASSERT_NE(piece, image.pieces.end());
  piece->bytes = random_payload(rng_, piece->bytes.size());
  auto head = encode_file(image);
  ASSERT_TRUE(head.ok());
  auto bytes = head->flatten();
  spew(path(second_), std::string(bytes.begin(), bytes.end()));
  expect_damaged(second_, "", true);
}

TEST_F(Cachectl, VerifyChecksContentAgainstTheProfile) {
  Object bad = second_;
  std::vector<uint8_t> raw(bad.planes[0].bytes.span().begin(), bad.planes[0].bytes.span().end());
  raw[raw.size() - 1] = 0x7e;  // the last scale becomes a NaN (f16 0x7eXX)
  bad.planes[0].bytes = Bytes::owning(raw);
  auto bytes = encode_file(raw_image(bad))->flatten();
  spew(path(second_), std::string(bytes.begin(), bytes.end()));
  expect_damaged(second_, "content: ", true);
}

TEST_F(Cachectl, AMissingProfileIsSaidAndIsNoDamage) {
  std::string hex_id = profile_->id().hex();
  fs::remove(store() + "/" + hex_id.substr(0, 1) + "/" + hex_id + ".profile");
  Ran ran = run("verify --deep --json " + store());
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_EQ(ran.parsed()["content_not_checked"], 4);
  EXPECT_EQ(run("show " + store() + " " + hex(first_)).code, 0);
}

TEST_F(Cachectl, VerifyNamesQuarantinedFilesWithTheirReasons) {
  std::string bytes = slurp(path(second_));
  bytes[bytes.size() - 3] ^= 1;
  spew(path(second_), bytes);
  EXPECT_FALSE(tier_->read(second_.name).ok());  // moved away
  Ran text = run("verify " + store());
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.out, HasSubstr("quarantined  quarantine/" + file_name(second_.name) +
                                  ".0: file checksum differs"));
  Ran ran = run("verify --json " + store());
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.parsed()["damaged"].size(), 0u);
  ASSERT_EQ(ran.parsed()["quarantined"].size(), 1u) << ran.out;
  EXPECT_EQ(ran.parsed()["quarantined"][0]["code"], "corruption");
}

TEST_F(Cachectl, CommandsThatChangeAreRefusedBesideAnOwner) {
  for (const std::string command : {"verify --repair", "reindex", "gc", "purge", "delete"}) {
    std::string more = command == "delete" ? " 00" : "";
    if (command == "purge") more = " '" + realm_.ns + "'";
    Ran ran = run(command + " " + store() + more);
    EXPECT_EQ(ran.code, 1) << command;
    EXPECT_THAT(ran.err, HasSubstr("in use by another process")) << command;
    EXPECT_EQ(run(command + " " + dir_.path() + "/missing" + more).code, 4) << command;
  }
  EXPECT_EQ(run("gc --dry-run " + store()).code, 0);
  EXPECT_FALSE(fs::exists(dir_.path() + "/missing"));
}

// One file whose payload, one whose header and one whose content is wrong; one catalog row too few.
TEST_F(Cachectl, RepairMovesWhatIsDamagedAndGcEmptiesTheQuarantine) {
  tier_.reset();
  std::string bytes = slurp(path(tail_));
  bytes[bytes.size() - 3] ^= 1;
  spew(path(tail_), bytes);
  bytes = slurp(path(other_));
  bytes[100] ^= 1;
  spew(path(other_), bytes);
  Object bad = second_;
  std::vector<uint8_t> raw(bad.planes[0].bytes.span().begin(), bad.planes[0].bytes.span().end());
  raw[raw.size() - 1] = 0x7e;
  bad.planes[0].bytes = Bytes::owning(raw);
  auto file = encode_file(raw_image(bad))->flatten();
  spew(path(second_), std::string(file.begin(), file.end()));
  Ran ran = run_changing("verify --deep --repair --json " + store());
  EXPECT_EQ(ran.code, 1) << "damage was there";
  EXPECT_EQ(ran.parsed()["damaged"].size(), 3u) << ran.out;
  EXPECT_EQ(ran.parsed()["repaired"]["moved_to_quarantine"], 3u) << ran.out;
  ran = run("verify --deep --json " + store());
  EXPECT_EQ(ran.parsed()["damaged"].size(), 0u);
  EXPECT_EQ(ran.parsed()["quarantined"].size(), 3u);
  ran = run("gc --dry-run --json " + store());
  EXPECT_EQ(ran.parsed()["files"].size(), 3u) << ran.out;
  EXPECT_EQ(run_changing("gc " + store()).code, 0);
  ran = run("verify --deep " + store());
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_TRUE(fs::exists(path(first_)));
}

TEST_F(Cachectl, GcRemovesOnlyWhatServesNothing) {
  ASSERT_TRUE(tier_->put_profile(sample_profile(5)).ok());  // named by nothing
  fs::remove(path(second_));                                // tail_ hangs in the air
  spew(store() + "/tmp/9.tmp", "half");
  spew(store() + "/0/notes.txt", "hello");
  Ran dry = run("gc --dry-run --json " + store());
  ASSERT_EQ(dry.code, 0) << dry.err;
  std::map<std::string, std::string> reasons;
  json files = dry.parsed()["files"];
  for (const auto& f : files) reasons[f["path"]] = f["reason"];
  EXPECT_EQ(reasons.size(), 3u) << dry.out;
  EXPECT_THAT(reasons[relative_path(tail_.name)], HasSubstr("a block of its path is missing"));
  EXPECT_THAT(reasons["tmp/9.tmp"], HasSubstr("temporary"));
  std::string unused = sample_profile(5).id().hex();
  EXPECT_THAT(reasons[unused.substr(0, 1) + "/" + unused + ".profile"], HasSubstr("nothing names"));
  tier_.reset();
  EXPECT_EQ(run_changing("gc " + store()).code, 0);
  for (const auto& [gone, reason] : reasons) EXPECT_FALSE(fs::exists(store() + "/" + gone)) << gone;
  for (const Object* kept : {&first_, &other_}) EXPECT_TRUE(fs::exists(path(*kept)));
  EXPECT_TRUE(fs::exists(store() + "/0/notes.txt"));
  EXPECT_EQ(run("gc --dry-run --json " + store()).parsed()["files"].size(), 0u);
  EXPECT_EQ(run("ls --json " + store()).parsed().size(), 1u);
}

TEST_F(Cachectl, PurgeLeavesNoTraceOfItsNamespaceAndAllOfTheOthers) {
  Object kept = first_;
  stamp(kept, {"other", model_.fingerprint, profile_->id()});
  put_all(*tier_, {raw_image(kept)});
  ModelRecord record{"other", model_, profile_->id(), 1};
  ASSERT_TRUE(tier_->put_model_record(record).ok());
  std::string bytes = slurp(path(second_));
  bytes[bytes.size() - 3] ^= 1;
  spew(path(second_), bytes);
  EXPECT_FALSE(tier_->read(second_.name).ok());  // to quarantine
  tier_.reset();
  for (const std::string place : {"", "0/"}) spew(store() + "/" + place + "notes.txt", "-");
  std::string ns = realm_.ns;
  Ran dry = run("purge --dry-run --json " + store() + " '" + ns + "'");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_EQ(dry.parsed()["not_understood"], 0u) << "foreign names are nobody's";
  EXPECT_EQ(dry.parsed()["objects"], 3u) << dry.out << dry.err;
  EXPECT_EQ(dry.parsed()["quarantined"], 1u);
  EXPECT_TRUE(fs::exists(path(first_)));
  Ran ran = run_changing("purge " + store() + " '" + ns + "'");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("removed 3 objects, 1 model, 0 profiles and 1 file in quaran"));
  std::vector<std::string> traces = {ns, hex(first_)};
  for (const Object* o : {&first_, &second_, &tail_, &other_}) {
    if (o == &first_) continue;  // the other namespace has these tokens too
    traces.emplace_back(reinterpret_cast<const char*>(o->tokens.data()), o->tokens.size() * 4);
  }
  for (const auto& [name, content] : listing(store())) {
    for (const auto& t : traces) EXPECT_EQ(content.find(t), std::string::npos) << name;
  }
  EXPECT_EQ(run("verify --deep " + store()).code, 0);
  EXPECT_TRUE(fs::exists(path(kept)));
  EXPECT_EQ(run("gc --dry-run --json " + store()).parsed()["files"].size(), 0u);
}

// A sealed file may need any of them, and nobody without the key can tell.
TEST_F(Cachectl, PurgeKeepsTheProfilesWhereAFileIsSealed) {
  tier_.reset();
  Object sealed = first_;
  stamp(sealed, {"another", realm_.fingerprint, realm_.profile});
  SsdOptions options = small_options();
  options.key = sample_key('k');
  tier_ = *SsdTier::open(store(), options);
  ASSERT_TRUE(tier_->recover().ok());
  ASSERT_TRUE(tier_->put(std::vector{packed(sealed)}, Durability::spilled)[0].status.ok());
  tier_.reset();
  spew(store() + "/tmp/7.tmp", "left by a dead process");
  std::string hex_id = profile_->id().hex();
  std::string profile = store() + "/" + hex_id.substr(0, 1) + "/" + hex_id + ".profile";
  ASSERT_TRUE(fs::exists(profile));
  for (bool dry : {true, false}) {
    std::string command = "purge --json " + store() + " '" + realm_.ns + "'";
    Ran ran = dry ? run(command + " --dry-run") : run_changing(command);
    EXPECT_EQ(ran.code, 1) << ran.out;
    EXPECT_EQ(ran.parsed()["objects"], 4u) << ran.out;
    EXPECT_EQ(ran.parsed()["models"], 1u) << ran.out;
    EXPECT_EQ(ran.parsed()["profiles"], 0u) << ran.out;
    EXPECT_EQ(ran.parsed()["sealed"], 1u) << ran.out;
    EXPECT_THAT(ran.err, HasSubstr("the profiles stay"));
    EXPECT_TRUE(fs::exists(profile));
  }
  EXPECT_FALSE(fs::exists(path(first_)));
  EXPECT_TRUE(fs::exists(path(sealed)));
}

TEST_F(Cachectl, GcRemovesNothingWhereAFileIsDamaged) {
  tier_.reset();
  std::string bytes = slurp(path(first_));
  bytes[100] ^= 1;  // the parent of all
  spew(path(first_), bytes);
  for (const std::string command : {"gc --dry-run ", "gc "}) {
    auto before = fs::file_size(path(second_));
    Ran ran = run_changing(command + store());
    EXPECT_EQ(ran.code, 1) << command;
    EXPECT_THAT(ran.err,
                AllOf(HasSubstr(relative_path(first_.name)), HasSubstr("verify --repair")));
    EXPECT_EQ(fs::file_size(path(second_)), before);
  }
}

// A sealed store beside the tests' plain one, and its key file.
class SealedCachectl : public Cachectl {
 protected:
  void SetUp() override {
    Cachectl::SetUp();
    tier_.reset();
    fs::remove_all(store());
    SsdOptions options = small_options();
    options.key = sample_key('k');
    write(options);
    key_file_ = dir_.path() + "/key";
    spew(key_file_, std::string(32, 'k'));
    fs::permissions(key_file_, fs::perms::owner_read | fs::perms::owner_write);
    with_key_ = " --key-file " + key_file_;
    id_ = to_hex(options.key->id());
  }
  std::string key_file_, with_key_, id_;
};

TEST_F(SealedCachectl, WithItsKeyASealedStoreIsAsAPlainOne) {
  Ran ran = run("verify --deep --json " + store() + with_key_);
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_EQ(ran.parsed()["files"], 6);
  EXPECT_EQ(ran.parsed()["sealed"].size(), 0u);
  EXPECT_EQ(ran.parsed()["content_not_checked"], 0);
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(run("ls --json " + store() + with_key_).parsed().size(), 2u);
  EXPECT_EQ(run("show " + store() + " " + hex(tail_) + with_key_).code, 0);
  std::string bytes = slurp(path(second_));
  bytes[bytes.size() - 3] ^= 1;
  spew(path(second_), bytes);
  tier_.reset();
  ran = run_changing("verify --repair --json " + store() + with_key_);
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.parsed()["damaged"].size(), 1u) << ran.out;
  EXPECT_EQ(ran.parsed()["repaired"]["moved_to_quarantine"], 1u);
  EXPECT_EQ(run_changing("gc " + store() + with_key_).code, 0);
  EXPECT_FALSE(fs::exists(path(tail_))) << "a block of its path is missing";
  EXPECT_TRUE(fs::exists(path(other_)));
  ran = run_changing("reindex --json " + store() + with_key_);
  EXPECT_EQ(ran.parsed()["objects"], 2u) << ran.out;
  ran = run_changing("purge --json " + store() + " '" + realm_.ns + "'" + with_key_);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.parsed()["objects"], 2u) << ran.out;
  EXPECT_FALSE(fs::exists(path(other_)));
}

TEST_F(SealedCachectl, WithoutItsKeySealedFilesAreCountedAndLeftAlone) {
  Ran ran = run("ls --blocks --json " + store());
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("6 files sealed (key id " + id_ + ")"));
  for (const auto& file : ran.parsed()) EXPECT_EQ(file["status"], "sealed") << ran.out;
  EXPECT_EQ(run("stats --json " + store()).parsed()["sealed_files"], 6u);
  EXPECT_EQ(run("show " + store() + " " + hex(tail_)).code, 4);
  tier_.reset();
  auto sealed = [&] {
    std::map<std::string, std::string> out;
    for (const auto& [name, content] : listing(store())) {
      if (name.find("catalog.db") == std::string::npos && fs::is_regular_file(name)) {
        out[name] = content;
      }
    }
    return out;
  };
  auto before = sealed();
  ASSERT_EQ(before.size(), 7u) << "and the lock";
  for (const std::string command : {"verify --deep", "verify --repair", "reindex"}) {
    ran = run_changing(command + " --json " + store());
    EXPECT_EQ(ran.code, 0) << command << ran.out;
    json count = ran.parsed()["sealed"];
    EXPECT_EQ(count.is_array() ? count.size() : count.get<size_t>(), 6u) << ran.out;
    if (ran.parsed().contains("damaged")) {
      EXPECT_EQ(ran.parsed()["damaged"].size(), 0u);
    }
  }
  for (const std::string command : {"gc", "gc --dry-run"}) {
    ran = run_changing(command + " " + store());
    EXPECT_EQ(ran.code, 1);
    EXPECT_THAT(ran.err, AllOf(HasSubstr(id_), HasSubstr("without its --key-file")));
  }
  ran = run_changing("purge --json " + store() + " '" + realm_.ns + "'");
  EXPECT_EQ(ran.code, 1) << "they may be the namespace's";
  EXPECT_EQ(ran.parsed()["sealed"], 6u);
  EXPECT_EQ(sealed(), before) << "not a byte of them changed";
  fs::permissions(key_file_, fs::perms::group_read, fs::perm_options::add);
  EXPECT_EQ(run("ls " + store() + with_key_).code, 2) << "others may read the key";
}

TEST_F(Cachectl, ReindexWritesTheCatalogFromTheFiles) {
  tier_.reset();
  fs::resize_file(store() + "/catalog.db", 100);
  Ran ran = run_changing("reindex --json " + store());
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.parsed()["objects"], 4u);
  auto tier = SsdTier::open(store(), small_options());
  ASSERT_TRUE(tier.ok());
  auto found = (*tier)->recover();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->rows_used, 4u);
  EXPECT_EQ(found->catalog_rebuilt, "");
}

TEST_F(Cachectl, DirectoriesThatAreNoStoreAreNotTouched) {
  fs::create_directory(dir_.path() + "/empty");
  for (const std::string command : {"ls", "verify", "stats"}) {
    EXPECT_EQ(run(command + " " + dir_.path() + "/empty").code, 4) << command;
    EXPECT_EQ(run(command + " " + dir_.path() + "/missing").code, 4) << command;
  }
  EXPECT_FALSE(fs::exists(dir_.path() + "/missing"));
}

TEST_F(Cachectl, CountersAreThoseOfTheRunningDaemon) {
  std::string socket = dir_.path() + "/run/cachesvc.sock";
  auto daemon = DaemonProcess::start(
      {"--dir", dir_.path() + "/served", "--socket", socket, "--ssd", "64MiB"});
  ASSERT_TRUE(daemon);
  Ran ran = run_changing("counters --json " + socket);
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.parsed()["ssd_limit_bytes"], 64u << 20);
  for (const char* name : {"ssd_written_bytes", "ssd_written_day_bytes", "ssd_write_percent",
                           "spills_held", "recovery_ms", "ssd_hangs"}) {
    EXPECT_TRUE(ran.parsed().contains(name)) << name;
  }
  EXPECT_TRUE(ran.parsed()["coding"].empty());
  EXPECT_THAT(run_changing("counters " + socket).out, HasSubstr("ssd_write_percent"));
  auto client = SocketClient::connect(socket, "tenant", {});
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  OpenRequest request;
  request.model = two_layer_model();
  ASSERT_TRUE((*client)->open(request, deadline_in(std::chrono::seconds(60))).ok());
  json coding = run_changing("counters --json " + socket).parsed()["coding"];
  ASSERT_EQ(coding.size(), 1u);
  EXPECT_EQ(coding[0]["model"], "two-layers");
  EXPECT_EQ(coding[0]["parts"][0]["active_k"], "int8");
  EXPECT_EQ(coding[0]["parts"][0]["active_v"], "tq4");
  EXPECT_EQ(coding[0]["parts"][1]["kind"], "latent");
  EXPECT_EQ(coding[0]["parts"][1]["active_k"], "raw");
  EXPECT_THAT(run_changing("counters " + socket).out,
              AllOf(HasSubstr("coding of two-layers"),
                    HasSubstr("layers 0 part 0 full: requested K int8 V tq4, active K int8 V tq4"),
                    HasSubstr("layers 1 part 0 latent: requested int8, active raw: latent")));
  daemon->kill();
  EXPECT_EQ(run_changing("counters " + socket).code, 1);
}

TEST_F(Cachectl, WrongArgumentsExitWithTwo) {
  const std::vector<std::string> wrong{"", "show", "wipe " + store(), "ls --frobnicate " + store(),
                                       "show --dir " + store()};
  for (const auto& arguments : wrong) {
    EXPECT_EQ(run(arguments).code, 2) << arguments;
  }
  EXPECT_EQ(run("--help").code, 0);
}

}  // namespace
}  // namespace kv
