// Inspection: names what is there and what is damaged, and never changes a byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "storage/inspect.h"
#include "storage/ssd_tier.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using namespace kv::testing;
namespace fs = std::filesystem;

std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    out[entry.path()] = std::string((std::istreambuf_iterator<char>(in)), {});
  }
  return out;
}

class Inspect : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 rng(1);
    images_ = sample_chain(rng, 5);
    images_.push_back(raw_image(sample_supplement(rng, images_[1].header, 0, 16, 20)));
    auto tier = SsdTier::open(dir_.store(), small_options());
    ASSERT_TRUE(tier.ok() && (*tier)->recover().ok());
    tier_ = std::move(*tier);
    for (const auto& r : tier_->put(images_, Durability::spilled)) ASSERT_TRUE(r.status.ok());
    ASSERT_TRUE(tier_->put_profile(sample_profile(1)).ok());
    ASSERT_TRUE(tier_->put_model_record(sample_record(4)).ok());
  }
  TempDir dir_;
  std::vector<FileImage> images_;
  std::unique_ptr<SsdTier> tier_;  // stays open: inspection works beside an owner
};

TEST_F(Inspect, ListsEveryFileBesideItsOwnerAndChangesNothing) {
  auto before = contents(dir_.store());
  for (auto depth : {InspectDepth::headers, InspectDepth::verify}) {
    auto inspection = inspect_directory(dir_.store(), depth);
    ASSERT_TRUE(inspection.ok()) << inspection.status().to_string();
    EXPECT_EQ(inspection->files.size(), images_.size() + 2);
    size_t matched = 0;
    for (const auto& file : inspection->files) {
      EXPECT_TRUE(file.status.ok()) << file.path << file.status.to_string();
      for (const auto& image : images_) {
        if (file.header.name != image.header.name) continue;
        ++matched;
        EXPECT_EQ(file.header.tokens, image.header.tokens);
        EXPECT_EQ(file.pieces.size(), image.pieces.size());
        EXPECT_EQ(file.unpacked_bytes, image.unpacked_bytes());
      }
      if (file.kind == FileKind::profile) {
        EXPECT_EQ(*file.profile, sample_profile(1));
      }
      if (file.kind == FileKind::model_record) {
        EXPECT_EQ(*file.model, sample_record(4));
      }
    }
    EXPECT_EQ(matched, images_.size());
    EXPECT_EQ(inspection->totals.kinds["block"].files, 5u);
    EXPECT_EQ(inspection->totals.kinds["supplement"].files, 1u);
    EXPECT_EQ(inspection->totals.damaged_files, 0u);
    EXPECT_EQ(inspection->totals.directory_bytes, du(dir_.store()));
  }
  EXPECT_EQ(contents(dir_.store()), before);
  auto image = inspect_object(dir_.store(), images_[2].header.name);
  ASSERT_TRUE(image.ok());
  expect_same(images_[2], *image);
}

TEST_F(Inspect, NamesEveryDamagedFileWithItsReason) {
  auto path = [&](size_t i) { return dir_.store() + "/" + relative_path(images_[i].header.name); };
  fs::resize_file(path(0), fs::file_size(path(0)) - 1);
  std::fstream flip(path(1), std::ios::in | std::ios::out | std::ios::binary);
  flip.seekp(-3, std::ios::end);
  flip.put('\x7f');
  flip.close();
  fs::copy_file(path(3), path(2), fs::copy_options::overwrite_existing);
  std::ofstream(dir_.store() + "/a/stranger") << "x";
  auto before = contents(dir_.store());
  auto inspection = inspect_directory(dir_.store(), InspectDepth::verify);
  ASSERT_TRUE(inspection.ok());
  std::map<std::string, std::string> reasons;
  for (const auto& file : inspection->files) reasons[file.path] = file.status.to_string();
  using ::testing::HasSubstr;
  EXPECT_THAT(reasons[relative_path(images_[0].header.name)], HasSubstr("file length: expected"));
  EXPECT_THAT(reasons[relative_path(images_[1].header.name)], HasSubstr("file checksum differs"));
  EXPECT_THAT(reasons[relative_path(images_[2].header.name)], HasSubstr("another object"));
  EXPECT_EQ(reasons[relative_path(images_[3].header.name)], "ok");
  EXPECT_THAT(reasons["a/stranger"], HasSubstr("foreign name"));
  EXPECT_EQ(inspection->totals.damaged_files, 3u);
  EXPECT_EQ(inspection->totals.unknown_files, 1u);
  EXPECT_EQ(contents(dir_.store()), before) << "nothing is quarantined from outside";
}

TEST(InspectDirectory, RefusesWhatIsNoStore) {
  TempDir dir;
  EXPECT_EQ(inspect_directory(dir.path(), InspectDepth::headers).status().code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(inspect_directory(dir.path() + "/none", InspectDepth::headers).status().code(),
            StatusCode::not_found);
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

}  // namespace
}  // namespace kv
