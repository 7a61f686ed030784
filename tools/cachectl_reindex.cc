// cachectl reindex: the catalog thrown away and written anew from the headers of all files. What
// only the catalog knew, the order of use, is taken over where its old rows can be read.
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {

Exit run_reindex(const Request& request) {
  SsdOptions options;
  options.reindex = true;
  auto tier = own_store(request, std::move(options));
  if (!tier.ok()) return report_error(tier.status());
  auto found = (*tier)->recover();
  if (!found.ok()) return report_error(found.status());
  Status written = (*tier)->checkpoint();
  if (!written.ok()) return report_error(written);
  uint64_t failures = (*tier)->stats().catalog_failures;
  if (request.json) {
    Json rejected = Json::array();
    for (const auto& r : found->rejected) {
      rejected.push_back(
          {{"file", r.file}, {"code", to_string(r.reason.code())}, {"reason", r.reason.message()}});
    }
    print_json({{"objects", found->objects.size()},
                {"bytes", found->adopted_bytes},
                {"rows_dropped", found->rows_dropped},
                {"quarantined", found->quarantined},
                {"unreadable", found->unreadable},
                {"sealed", found->other_key_files},
                {"rejected", rejected},
                {"catalog_failures", failures},
                {"milliseconds", found->milliseconds}});
  } else {
    for (const auto& r : found->rejected) {
      std::printf("left out  %s: %s\n", printable(r.file).c_str(),
                  printable(r.reason.message()).c_str());
    }
    std::printf("%s indexed (%s) in %llu ms, %llu moved to quarantine\n",
                counted(found->objects.size(), "object").c_str(),
                human_bytes(found->adopted_bytes).c_str(),
                static_cast<unsigned long long>(found->milliseconds),
                static_cast<unsigned long long>(found->quarantined));
  }
  if (failures > 0) std::fprintf(stderr, "cachectl: the catalog could not be written whole\n");
  return failures == 0 && found->unreadable == 0 ? Exit::ok : Exit::failed;
}

}  // namespace kv::cachectl
