// cachectl verify: reads every byte of every file and names each damaged one, those in quarantine
// too.
//
// Of each object the file is checked: checksum, id, name. With --deep also its packing (every piece
// unpacks to its size) and its content (shapes against model and profile, finite values). A file is
// read twice before it is called damaged when the first read fails, as the tier does. With --repair
// the store is owned meanwhile, and what is damaged moves to quarantine.
#include <optional>

#include "codec/codec.h"
#include "codec/lossless.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {
namespace {

struct Finding {
  std::string path;
  Status status;
};

struct Report {
  uint64_t files = 0, bytes = 0;
  uint64_t unpacked_pieces = 0;           ///< that were packed
  uint64_t undecodable = 0;               ///< objects whose profile or model record is not there
  std::vector<Finding> damaged;           ///< including files that could not be read
  std::vector<ObjectName> moved_objects;  ///< of `damaged`: objects that a repair moves
  std::vector<Finding> quarantined;       ///< by earlier reads or repairs
  std::vector<Finding> foreign;  ///< strangers and other format versions: left alone by the tier
  std::vector<Finding> sealed;   ///< with another key than the given one: left alone too
};

class Verifier {
 public:
  Verifier(const StoreView& store, const Request& request)
      : store_(store),
        directory_(request.directory),
        key_(request.key.get()),
        deep_(request.deep) {}

  Report run() {
    const auto& files = store_.inspection().files;
    Progress progress("verify", files.size());
    for (const auto& file : files) {
      verify(file);
      progress.step(report_.files, report_.bytes);
    }
    for (const auto& file : store_.inspection().quarantined) {
      Status why = inspect_quarantined(directory_, file, key_);
      if (why.code() == StatusCode::not_found) continue;  // made room for a newer one
      if (why.ok()) why = corruption("content that does not fit its model and profile");
      report_.quarantined.push_back({file.path, why});
    }
    return std::move(report_);
  }

 private:
  void verify(const InspectedFile& file) {
    Status status = file.status;
    if (status.ok() && is_object(file)) {
      status = verify_object(file);
      if (status.code() == StatusCode::corruption) status = verify_object(file);
      if (status.code() == StatusCode::not_found) return;  // gone since it was listed
    }
    ++report_.files;
    report_.bytes += file.file_bytes;
    if (status.ok()) return;
    if (file.other_key) return report_.sealed.push_back({file.path, status});
    bool foreign = status.code() == StatusCode::unsupported;
    (foreign ? report_.foreign : report_.damaged).push_back({file.path, status});
    if (status.code() == StatusCode::corruption && is_object(file)) {
      report_.moved_objects.push_back(file.name);
    }
  }

  Status verify_object(const InspectedFile& file) {
    KV_ASSIGN_OR_RETURN(FileImage image, inspect_object(directory_, file.name, key_));
    if (!deep_) return {};
    uint64_t unpacked = 0;
    KV_ASSIGN_OR_RETURN(Object object, to_object(image, [&](const Piece& piece) {
                          std::vector<uint8_t> bytes(piece.unpacked_bytes);
                          auto way = piece.packing == Packing::split ? unpack_split : unpack;
                          Status status = way(piece.bytes.span(), bytes);
                          if (!status.ok()) return Result<Bytes>(status);
                          ++unpacked;
                          return Result<Bytes>(Bytes::owning(std::move(bytes)));
                        }));
    report_.unpacked_pieces += unpacked;
    return verify_content(object);
  }

  Status verify_content(const Object& object) {
    KV_ASSIGN_OR_RETURN(auto codec, codec_for(object));
    if (!codec) {
      ++report_.undecodable;
      return {};
    }
    Status fits = validate(object, codec->model(), codec->profile());
    for (size_t i = 0; fits.ok() && i < object.planes.size(); ++i) {
      fits = codec->check(object.planes[i]);
    }
    return fits.ok() ? fits : corruption("content: " + fits.message());
  }

  using CodecPtr = std::shared_ptr<const Codec>;
  /// Null if model record or profile is missing. Returns: unsupported, if this build can't decode.
  Result<CodecPtr> codec_for(const Object& object) {
    auto record = store_.model_of(object);
    auto profile = store_.profile(object.profile);
    if (!record || !profile) return CodecPtr();
    auto at = codecs_.find({record.get(), profile.get()});
    if (at == codecs_.end()) {
      auto made = Codec::create(record->model, profile);
      // A profile that doesn't fit the model decodes nothing.
      if (!made.ok() && made.status().code() != StatusCode::unsupported) made = CodecPtr();
      at = codecs_.emplace(std::pair(record.get(), profile.get()), std::move(made)).first;
    }
    return at->second;
  }

  const StoreView& store_;
  std::string directory_;
  const SealKey* key_;
  bool deep_;
  Report report_;
  std::map<std::pair<const ModelRecord*, const Profile*>, Result<CodecPtr>> codecs_;
};

Json findings_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const auto& f : findings) {
    out.push_back(
        {{"path", f.path}, {"code", to_string(f.status.code())}, {"reason", f.status.message()}});
  }
  return out;
}

void print_findings(const char* what, const std::vector<Finding>& findings) {
  for (const auto& f : findings) {
    std::printf("%s  %s: %s\n", what, printable(f.path).c_str(),
                printable(f.status.message()).c_str());
  }
}

struct Repair {
  uint64_t moved = 0;  ///< files to quarantine
  uint64_t rows_adopted = 0, rows_dropped = 0, temps_removed = 0;
  std::string catalog_rebuilt;
};

/// The tier's own recovery takes away what shows in headers and records, and mends the catalog; the
/// rest goes by name.
Result<Repair> repair(SsdTier& tier, const Report& report) {
  KV_ASSIGN_OR_RETURN(Recovery found, tier.recover());
  Repair out{found.quarantined, found.adopted, found.rows_dropped, found.temps_removed,
             found.catalog_rebuilt};
  for (const auto& name : report.moved_objects) {
    Status moved = tier.quarantine(name);
    if (moved.code() == StatusCode::not_found) continue;
    KV_RETURN_IF_ERROR(moved);
    ++out.moved;
  }
  return out;
}

Json repair_json(const Repair& r) {
  return {{"moved_to_quarantine", r.moved},
          {"rows_adopted", r.rows_adopted},
          {"rows_dropped", r.rows_dropped},
          {"temporary_files_removed", r.temps_removed},
          {"catalog_rebuilt", r.catalog_rebuilt}};
}

void print_repair(const Repair& r) {
  if (!r.catalog_rebuilt.empty()) {
    std::printf("catalog started anew: %s\n", printable(r.catalog_rebuilt).c_str());
  }
  auto count = [](unsigned long long n) { return n; };
  std::printf("repaired: %s moved to quarantine, %llu rows adopted, %llu dropped, %s removed\n",
              counted(r.moved, "file").c_str(), count(r.rows_adopted), count(r.rows_dropped),
              counted(r.temps_removed, "temporary file").c_str());
}

void print_report(const Report& r) {
  print_findings("damaged", r.damaged);
  print_findings("quarantined", r.quarantined);
  print_findings("foreign", r.foreign);
  print_findings("sealed", r.sealed);
  if (r.undecodable > 0) {
    std::printf("%s: checksums good, content not checked (model record or profile missing)\n",
                counted(r.undecodable, "object").c_str());
  }
  std::printf("%s read (%s), %zu damaged, %zu in quarantine\n", counted(r.files, "file").c_str(),
              human_bytes(r.bytes).c_str(), r.damaged.size(), r.quarantined.size());
}

}  // namespace

Exit run_verify(const Request& request) {
  std::unique_ptr<SsdTier> tier;
  if (request.repair) {
    auto owned = own_store(request, {});
    if (!owned.ok()) return report_error(owned.status());
    tier = std::move(*owned);
  }
  auto store = StoreView::load(request);
  if (!store.ok()) return report_error(store.status());
  Report r = Verifier(*store, request).run();
  std::optional<Repair> repaired;
  if (tier) {
    auto done = repair(*tier, r);
    if (!done.ok()) return report_error(done.status());
    repaired = *done;
  }
  if (request.json) {
    Json out = {{"files", r.files},
                {"bytes", r.bytes},
                {"unpacked_pieces", r.unpacked_pieces},
                {"content_not_checked", r.undecodable},
                {"damaged", findings_json(r.damaged)},
                {"quarantined", findings_json(r.quarantined)},
                {"foreign", findings_json(r.foreign)},
                {"sealed", findings_json(r.sealed)}};
    if (repaired) out["repaired"] = repair_json(*repaired);
    print_json(out);
  } else {
    print_report(r);
    if (repaired) print_repair(*repaired);
  }
  remark_sealed(store->inspection());
  return r.damaged.empty() && r.quarantined.empty() ? Exit::ok : Exit::failed;
}

}  // namespace kv::cachectl
