// cachectl verify: reads every byte of every file and names each damaged one.
//
// Three depths per object: the file (checksum, id, name), its packing (every piece unpacks to its
// size), its content (shapes against model and profile, finite values). A file is read twice before
// it is called damaged when the first read fails, as the tier does.
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
  uint64_t unpacked_pieces = 0;   ///< zstd pieces
  uint64_t undecodable = 0;       ///< objects whose profile or model record is not there
  std::vector<Finding> damaged;   ///< including files that could not be read
  std::vector<Finding> foreign;   ///< strangers and other format versions: left alone by the tier
};

class Verifier {
 public:
  Verifier(const StoreView& store, std::string directory)
      : store_(store), directory_(std::move(directory)) {}

  Report run() {
    const auto& files = store_.inspection().files;
    Progress progress("verify", files.size());
    for (const auto& file : files) {
      verify(file);
      progress.step(report_.files, report_.bytes);
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
    bool foreign = status.code() == StatusCode::unsupported;
    (foreign ? report_.foreign : report_.damaged).push_back({file.path, status});
  }

  Status verify_object(const InspectedFile& file) {
    KV_ASSIGN_OR_RETURN(FileImage image, inspect_object(directory_, file.name));
    uint64_t unpacked = 0;
    KV_ASSIGN_OR_RETURN(Object object, to_object(image, [&](const Piece& piece) {
      auto bytes = unpack(piece.bytes.span(), piece.unpacked_bytes);
      if (!bytes.ok()) return Result<Bytes>(bytes.status());
      ++unpacked;
      return Result<Bytes>(Bytes::adopt(std::move(*bytes)));
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

  /// Null if model record or profile is missing. Returns: unsupported, if this build can't decode.
  Result<std::shared_ptr<const Codec>> codec_for(const Object& object) {
    auto record = store_.model_of(object);
    auto profile = store_.profile(object.profile);
    if (!record || !profile) return std::shared_ptr<const Codec>();
    auto [at, fresh] = codecs_.try_emplace({record.get(), profile.get()});
    if (!fresh) return at->second;
    auto codec = Codec::create(record->model, profile);
    if (codec.ok()) at->second = *codec;
    if (codec.status().code() == StatusCode::unsupported) return codec.status();
    return at->second;  // a profile that doesn't fit the model decodes nothing
  }

  const StoreView& store_;
  std::string directory_;
  Report report_;
  std::map<std::pair<const ModelRecord*, const Profile*>, std::shared_ptr<const Codec>> codecs_;
};

Json findings_json(const std::vector<Finding>& findings) {
  Json out = Json::array();
  for (const auto& f : findings) {
    out.push_back({{"path", f.path},
                   {"code", to_string(f.status.code())},
                   {"reason", f.status.message()}});
  }
  return out;
}

void print_findings(const char* what, const std::vector<Finding>& findings) {
  for (const auto& f : findings) {
    std::printf("%s  %s: %s\n", what, printable(f.path).c_str(),
                printable(f.status.message()).c_str());
  }
}

void print_report(const Report& r, const InspectTotals& totals) {
  print_findings("damaged", r.damaged);
  print_findings("foreign", r.foreign);
  if (r.undecodable > 0) {
    std::printf("%s: checksums good, content not checked (model record or profile missing)\n",
                counted(r.undecodable, "object").c_str());
  }
  if (totals.quarantine_files > 0) {
    std::printf("%s in quarantine, not checked again\n",
                counted(totals.quarantine_files, "file").c_str());
  }
  std::printf("%s read (%s), %zu damaged\n", counted(r.files, "file").c_str(),
              human_bytes(r.bytes).c_str(), r.damaged.size());
}

}  // namespace

Exit run_verify(const Request& request) {
  auto store = StoreView::load(request.directory);
  if (!store.ok()) return report_error(store.status());
  Report r = Verifier(*store, request.directory).run();
  const InspectTotals& totals = store->inspection().totals;
  if (request.json) {
    print_json({{"files", r.files},
                {"bytes", r.bytes},
                {"unpacked_pieces", r.unpacked_pieces},
                {"content_not_checked", r.undecodable},
                {"quarantine_files", totals.quarantine_files},
                {"damaged", findings_json(r.damaged)},
                {"foreign", findings_json(r.foreign)}});
  } else {
    print_report(r, totals);
  }
  return r.damaged.empty() ? Exit::ok : Exit::failed;
}

}  // namespace kv::cachectl
