// cachectl export and import: a stored sequence as a safetensors file, and back.
//
// The file has the entry as it is stored, codes as codes, so an import followed by an export gives
// the same bytes. Rows that are kept exact are tensors of their dtype, (rows, heads, dim); codes
// are bytes (FORMAT.md, "Plane payload"). `cachesvc.model`, `cachesvc.profile` and each object's
// `cachesvc.object.N` (its header, FORMAT.md) make an entry of them again.
#include <algorithm>
#include <tuple>

#include "codec/lossless.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_safetensors.h"
#include "tools/cachectl_status.h"

namespace kv::cachectl {
namespace {

constexpr const char *kFormat = "cachesvc-entry-1", *kModel = "cachesvc.model",
                     *kProfile = "cachesvc.profile";

struct ExportArguments {
  Given given;
  std::string id, file, ns;
};

template <typename Value>
Tensor encoded(const std::string& name, const Value& value) {
  ByteWriter out;
  encode(value, out);
  const uint64_t size = out.size();
  return {name, "U8", {size}, Bytes::owning(out.take())};
}

std::string object_name(size_t i) { return "cachesvc.object." + std::to_string(i); }
std::string plane_name(size_t i, const Plane& p) {
  return "object." + std::to_string(i) + ".layer." + std::to_string(p.layer) + ".part." +
         std::to_string(p.part) + "." + to_string(p.side);
}
std::string state_name(size_t i, const StateBlob& s) {
  return "object." + std::to_string(i) + ".layer." + std::to_string(s.layer) + ".part." +
         std::to_string(s.part) + ".state";
}

Tensor tensor_of(size_t i, const Plane& p) {
  if (p.runs.size() != 1 || p.runs[0].form != RunForm::exact) {
    return {plane_name(i, p), "U8", {p.bytes.size()}, p.bytes};
  }
  const char* dtype = p.dtype == DType::f32 ? "F32" : p.dtype == DType::f16 ? "F16" : "BF16";
  return {plane_name(i, p), dtype, {p.rows(), p.heads, p.dim}, p.bytes};
}

Result<Object> read_whole(const Request& request, const ObjectName& name) {
  KV_ASSIGN_OR_RETURN(FileImage image, inspect_object(request.directory, name, request.key.get()));
  return to_object(image, [](const Piece& piece) {
    std::vector<uint8_t> bytes(piece.unpacked_bytes);
    auto way = piece.packing == Packing::split ? unpack_split : unpack;
    const Status status = way(piece.bytes.span(), bytes);
    return status.ok() ? Result<Bytes>(Bytes::owning(std::move(bytes))) : Result<Bytes>(status);
  });
}

Result<Safetensors> content_of(const Request& request, const StoreView& store,
                               const std::string& id) {
  std::vector<Entry> entries = store.entries();
  KV_ASSIGN_OR_RETURN(const size_t at, find_entry(entries, id));
  Entry& entry = entries[at];
  if (!entry.complete) return invalid_argument("a block before it is missing");
  const Object& leaf = entry.leaf->header;
  auto record = store.model_of(leaf);
  auto profile = store.profile(leaf.profile);
  if (!record || !profile) return invalid_argument("its model record or profile is missing");
  std::sort(entry.files.begin(), entry.files.end(), [](const auto* a, const auto* b) {
    return std::tuple(a->header.first_token, a->name) < std::tuple(b->header.first_token, b->name);
  });
  Safetensors out;
  const EntryWords words = store.words_of(*entry.leaf);
  out.texts = {{"format", kFormat},
               {"namespace", printable(leaf.ns)},
               {"model", record->model.name},
               {"fingerprint", leaf.fingerprint.hex()},
               {"tokens", std::to_string(leaf.end_token())},
               {"objects", std::to_string(entry.files.size())},
               {"label", words.label},
               {"prefill_ms", std::to_string(words.prefill_ms)}};
  out.tensors.push_back(encoded(kModel, record->model));
  out.tensors.push_back(encoded(kProfile, *profile));
  for (size_t i = 0; i < entry.files.size(); ++i) {
    KV_ASSIGN_OR_RETURN(const Object object, read_whole(request, entry.files[i]->name));
    ByteWriter head;
    encode_header(object, head);
    const uint64_t size = head.size();
    out.tensors.push_back({object_name(i), "U8", {size}, Bytes::owning(head.take())});
    for (const Plane& p : object.planes) out.tensors.push_back(tensor_of(i, p));
    for (const StateBlob& s : object.states) {
      out.tensors.push_back({state_name(i, s), "U8", {s.bytes.size()}, s.bytes});
    }
  }
  return out;
}

Exit run_export(const ExportArguments& args) {
  auto request = directory_request(args.given, {});
  if (!request.ok()) return report_error(request.status());
  auto store = StoreView::load(*request);
  if (!store.ok()) return report_error(store.status());
  auto content = content_of(*request, *store, args.id);
  if (!content.ok()) return report_error(content.status());
  const Status written = write_safetensors(args.file, *content);
  if (!written.ok()) return report_error(written);
  std::printf("%s: %s tokens of model %s, %s objects\n", printable(args.file).c_str(),
              content->texts["tokens"].c_str(), printable(content->texts["model"]).c_str(),
              content->texts["objects"].c_str());
  return Exit::ok;
}

// Returns: corruption.
Result<Object> object_in(const Safetensors& content, size_t i) {
  const Tensor* head = content.find(object_name(i));
  if (head == nullptr) return corruption("object " + std::to_string(i) + " is missing");
  ByteReader reader(head->bytes.span());
  KV_ASSIGN_OR_RETURN(Object object, decode_header(reader));
  std::vector<uint8_t> payload;
  const auto add = [&](const std::string& name) {
    const Tensor* tensor = content.find(name);
    if (tensor == nullptr) return corruption("tensor " + name + " is missing");
    payload.insert(payload.end(), tensor->bytes.data(),
                   tensor->bytes.data() + tensor->bytes.size());
    return Status();
  };
  for (const Plane& p : object.planes) KV_RETURN_IF_ERROR(add(plane_name(i, p)));
  for (const StateBlob& s : object.states) KV_RETURN_IF_ERROR(add(state_name(i, s)));
  KV_RETURN_IF_ERROR(attach_payload(object, Bytes::owning(std::move(payload))));
  return object;
}

struct Imported {
  ModelSpec model;
  std::shared_ptr<const Profile> profile;
  std::vector<Object> objects;
  Query query;
  EntryWords words;
  std::string ns;
};

Result<Imported> entry_in(const std::string& file) {
  KV_ASSIGN_OR_RETURN(Safetensors content, read_safetensors(file));
  const Tensor *model = content.find(kModel), *profile = content.find(kProfile);
  if (content.texts["format"] != kFormat || model == nullptr || profile == nullptr) {
    return corruption(file + " is no entry that `cachectl export` wrote");
  }
  Imported out;
  ByteReader of_model(model->bytes.span()), of_profile(profile->bytes.span());
  KV_ASSIGN_OR_RETURN(out.model, decode_model(of_model));
  KV_ASSIGN_OR_RETURN(Profile known, decode_profile(of_profile));
  out.profile = std::make_shared<const Profile>(std::move(known));
  for (size_t i = 0; content.find(object_name(i)) != nullptr; ++i) {
    KV_ASSIGN_OR_RETURN(Object object, object_in(content, i));
    const bool next = object.first_token == out.query.tokens.size();
    if (is_main(object.name.kind) && next) {
      out.query.tokens.insert(out.query.tokens.end(), object.tokens.begin(), object.tokens.end());
      out.query.extras.insert(out.query.extras.end(), object.extras.begin(), object.extras.end());
    }
    out.ns = object.ns;
    out.objects.push_back(std::move(object));
  }
  out.words.label = content.texts["label"];
  out.words.prefill_ms =
      static_cast<uint32_t>(std::strtoul(content.texts["prefill_ms"].c_str(), nullptr, 10));
  return out;
}

const Object* object_for(const Imported& entry, const Need& need) {
  const uint32_t block = entry.profile->block_tokens;
  for (const Object& o : entry.objects) {
    if (o.name.kind != need.kind || o.first_token != need.block_index * block) continue;
    if (need.kind == ObjectKind::supplement &&
        std::tuple(o.name.group, o.name.first_row, o.name.end_row) !=
            std::tuple(need.group, need.first_row, need.end_row)) {
      continue;
    }
    if (need.kind == ObjectKind::snapshot && o.end_token() != need.end_row) continue;
    return &o;
  }
  return nullptr;
}

Result<size_t> store(const Imported& entry, Client& client) {
  KV_ASSIGN_OR_RETURN(const OpenReply model,
                      client.open({entry.model, entry.profile}, deadline_in(kPatience)));
  if (model.realm.profile != entry.profile->id()) {
    return Status(StatusCode::profile_changed,
                  "another profile is in force of this model there: import into another namespace");
  }
  ReserveRequest request;
  request.model = model.model;
  request.profile = model.realm.profile;
  request.query = entry.query;
  request.words = entry.words;
  KV_ASSIGN_OR_RETURN(ReserveReply reserved, client.reserve(request, deadline_in(kPatience)));
  size_t sent = 0;
  for (const Need& need : reserved.needs) {
    const Object* object = object_for(entry, need);
    if (object == nullptr && !need.required) continue;
    if (object == nullptr) {
      return corruption("the file lacks the rows of block " + std::to_string(need.block_index));
    }
    PutRequest put;
    put.reservation = reserved.reservation;
    put.object.name = object->name;
    put.object.name.id = {};
    put.object.first_token = object->first_token;
    if (need.kind == ObjectKind::snapshot) put.object.tokens = object->tokens;
    put.object.planes = object->planes;
    put.object.states = object->states;
    KV_RETURN_IF_ERROR(client.put(std::move(put), deadline_in(kPatience)));
    ++sent;
  }
  KV_RETURN_IF_ERROR(
      client.commit(reserved.reservation, Durability::spilled, deadline_in(kPatience)).status());
  return sent;
}

Exit run_import(const ExportArguments& args) {
  auto entry = entry_in(args.file);
  if (!entry.ok()) return report_error(entry.status());
  auto place = find_place(args.given);
  if (!place.ok()) return report_error(place.status());
  say_place(*place);
  const std::string ns = args.ns.empty() ? entry->ns : args.ns;
  auto client = daemon_of(*place, ns);
  if (!client.ok()) return report_error(client.status());
  auto sent = store(*entry, **client);
  if (!sent.ok()) return report_error(sent.status());
  std::printf("%s: %zu tokens of model %s in namespace %s, %s stored\n",
              printable(args.file).c_str(), entry->query.tokens.size(),
              printable(entry->model.name).c_str(), printable(ns).c_str(),
              counted(*sent, "object").c_str());
  return Exit::ok;
}

}  // namespace

void add_export(CLI::App& app, std::function<Exit()>& chosen) {
  auto out = std::make_shared<ExportArguments>(), in = std::make_shared<ExportArguments>();
  CLI::App* to = app.add_subcommand(
      "export", "write one stored sequence to a safetensors file (it holds the prompt's tokens)");
  add_place(*to, out->given, "");
  to->add_option("--id", out->id, "as `ls` names it, or its beginning")->required();
  to->add_option("--out", out->file, "the file, which must not be there yet")->required();
  to->callback([&chosen, out] { chosen = [out] { return run_export(*out); }; });
  CLI::App* from = app.add_subcommand("import",
                                      "store what export wrote, in a running daemon (what an "
                                      "engine wrote: cachesvc-files of the Python package)");
  add_place(*from, in->given, "");
  from->add_option("--in", in->file, "the file")->required();
  from->add_option("--namespace", in->ns, "store it there; default: where it was");
  from->callback([&chosen, in] { chosen = [in] { return run_import(*in); }; });
}

}  // namespace kv::cachectl
