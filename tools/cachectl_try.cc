// cachectl ping, put and get: a daemon tried without code of one's own. put stores an entry of a
// small model, whose rows are a function of its tokens, so get can check each value that comes
// back.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "codec/plan.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_print.h"
#include "tools/cachectl_status.h"
#include "tools/cachectl_why.h"

namespace kv::cachectl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kModelName = "cachectl-try";
constexpr uint32_t kHeads = 2, kRowDim = 64;
constexpr uint32_t kMostTokens = 1 << 20;
constexpr int kPings = 10;

struct TryArguments {
  Given given;
  std::string file, ns, label;
  uint32_t tokens = 600;
};

/// One layer that is coded and one of latents, which are kept as they come.
ModelSpec try_model() {
  ModelSpec model;
  model.name = kModelName;
  const std::string identity = "cachectl try 1";
  model.fingerprint = sha256({reinterpret_cast<const uint8_t*>(identity.data()), identity.size()});
  PartSpec full, latent;
  full.heads = kHeads;
  full.k_dim = full.v_dim = kRowDim;
  latent.kind = PartKind::latent;
  latent.heads = 1;
  latent.k_dim = kRowDim;
  model.layers = {LayerSpec{{full}}, LayerSpec{{latent}}};
  return model;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

// The values that stand for tokens [0, i]: multiples of 1/64 in [-2, 2), exact in every dtype.
class Rows {
 public:
  explicit Rows(const std::vector<Token>& tokens) {
    uint64_t hash = 1;
    for (const Token token : tokens) {
      hash = mixed(hash * 31 + static_cast<uint32_t>(token));
      prefixes_.push_back(hash);
    }
  }
  float value(const Plane& plane, uint32_t row, uint32_t at) const {
    const uint64_t where =
        (uint64_t{plane.layer} << 40) | (static_cast<uint64_t>(plane.side) << 32);
    return static_cast<float>(static_cast<int>(mixed(prefixes_[row] ^ mixed(where | at)) & 0xff) -
                              128) /
           64;
  }
  Plane plane(uint16_t layer, const SideSpec& side, uint32_t first, uint32_t end) const {
    Plane p;
    p.layer = layer;
    p.side = side.side;
    p.dtype = DType::f32;
    p.heads = side.heads;
    p.dim = side.dim;
    p.first_row = first;
    p.runs = {{RunForm::exact, end - first}};
    std::vector<float> values;
    for (uint32_t row = first; row < end; ++row) {
      for (uint32_t i = 0; i < side.heads * side.dim; ++i) values.push_back(value(p, row, i));
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    p.bytes = Bytes::copy_of({bytes, values.size() * sizeof(float)});
    return p;
  }

 private:
  std::vector<uint64_t> prefixes_;
};

Result<std::vector<Token>> tokens_of(const TryArguments& args) {
  if (!args.file.empty()) return tokens_in(args.file);
  std::vector<Token> out;
  for (uint32_t i = 0; i < args.tokens; ++i) out.push_back(static_cast<Token>(mixed(i) % 32000));
  return out;
}

struct Opened {
  std::unique_ptr<SocketClient> client;
  OpenReply model;
  std::vector<Token> tokens;
  std::string ns;
};

Result<Opened> open(const TryArguments& args) {
  Opened out;
  KV_ASSIGN_OR_RETURN(out.tokens, tokens_of(args));
  KV_ASSIGN_OR_RETURN(const Place place, find_place(args.given));
  say_place(place);
  KV_ASSIGN_OR_RETURN(out.client, daemon_of(place, args.ns));
  OpenRequest request;
  request.model = try_model();
  KV_ASSIGN_OR_RETURN(out.model, out.client->open(request, deadline_in(kPatience)));
  out.ns = out.model.realm.ns;
  return out;
}

uint64_t since_us(Clock::time_point start) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count());
}

std::string ms(uint64_t us) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f ms", static_cast<double>(us) / 1000);
  return text;
}

Exit run_ping(const TryArguments& args) {
  auto place = find_place(args.given);
  if (!place.ok()) return report_error(place.status());
  say_place(*place);
  const Clock::time_point start = Clock::now();
  auto client = daemon_of(*place, args.ns);
  if (!client.ok()) return report_error(client.status());
  const uint64_t connected = since_us(start);
  std::vector<uint64_t> took;
  for (int i = 0; i < kPings; ++i) {
    const Clock::time_point asked = Clock::now();
    auto stats = (*client)->stats(deadline_in(kPatience));
    if (!stats.ok()) return report_error(stats.status());
    took.push_back(since_us(asked));
  }
  std::sort(took.begin(), took.end());
  if (args.given.json) {
    print_json(
        {{"socket", place->socket}, {"connect_us", connected}, {"answer_us", took[kPings / 2]}});
    return Exit::ok;
  }
  std::printf("%s answers in %s, the first time with its connection in %s\n",
              printable(place->socket).c_str(), ms(took[kPings / 2]).c_str(),
              ms(connected).c_str());
  return Exit::ok;
}

Object object_of(const Need& need, const Rows& rows, const ModelSpec& model, uint32_t block) {
  Object out;
  out.name.kind = need.kind;
  out.first_token = need.block_index * block;
  for (uint16_t layer = 0; layer < model.layers.size(); ++layer) {
    for (const SideSpec& side : sides_of(model.layers[layer].parts[0])) {
      out.planes.push_back(rows.plane(layer, side, need.first_row, need.end_row));
    }
  }
  return out;
}

struct Put {
  size_t objects = 0;
  uint64_t bytes = 0, us = 0;
  Durability level = Durability::none;
};

Result<Put> put(Opened& at, const std::string& label) {
  Put out;
  const ModelSpec model = try_model();
  const Rows rows(at.tokens);
  const Clock::time_point start = Clock::now();
  ReserveRequest request;
  request.model = at.model.model;
  request.profile = at.model.realm.profile;
  request.query.tokens = at.tokens;
  request.words.label = label;
  KV_ASSIGN_OR_RETURN(ReserveReply reserved, at.client->reserve(request, deadline_in(kPatience)));
  for (const Need& need : reserved.needs) {
    PutRequest one;
    one.reservation = reserved.reservation;
    one.object = object_of(need, rows, model, at.model.profile->block_tokens);
    out.bytes += one.object.payload_bytes();
    ++out.objects;
    KV_RETURN_IF_ERROR(at.client->put(std::move(one), deadline_in(kPatience)));
  }
  KV_ASSIGN_OR_RETURN(
      CommitReply stored,
      at.client->commit(reserved.reservation, Durability::spilled, deadline_in(kPatience)));
  out.level = stored.level;
  out.us = since_us(start);
  return out;
}

Exit run_put(const TryArguments& args) {
  auto at = open(args);
  if (!at.ok()) return report_error(at.status());
  auto done = put(*at, args.label);
  if (!done.ok()) return report_error(done.status());
  if (args.given.json) {
    print_json({{"namespace", at->ns},
                {"model", kModelName},
                {"tokens", at->tokens.size()},
                {"objects", done->objects},
                {"bytes", done->bytes},
                {"level", to_string(done->level)},
                {"us", done->us}});
    return Exit::ok;
  }
  if (done->objects == 0) {
    std::printf("%zu tokens of model %s in namespace %s: all of it was there, %s\n",
                at->tokens.size(), kModelName, printable(at->ns).c_str(), to_string(done->level));
  } else {
    std::printf("stored %zu tokens of model %s in namespace %s: %s of %s as given, %s in %s\n",
                at->tokens.size(), kModelName, printable(at->ns).c_str(),
                counted(done->objects, "object").c_str(), human_bytes(done->bytes).c_str(),
                to_string(done->level), ms(done->us).c_str());
  }
  std::puts("`cachectl get` with the same arguments reads it back");
  return Exit::ok;
}

// Distance of what came back from what was put, over the rows that the hit may use.
struct Checked {
  uint64_t exact = 0, changed = 0;    ///< values of the layer that is never coded
  double error[2] = {}, all[2] = {};  ///< K, V: sums of squares

  void add(const Plane& p, const Rows& rows, uint32_t end) {
    const auto* values = reinterpret_cast<const float*>(p.bytes.data());
    for (uint32_t row = p.first_row; row < std::min(p.end_row(), end); ++row) {
      for (uint32_t i = 0; i < p.heads * p.dim; ++i) {
        const float want = rows.value(p, row, i), got = *values++;
        if (p.side == Side::other) {
          ++(got == want ? exact : changed);
          continue;
        }
        const auto side = static_cast<size_t>(p.side);
        error[side] += (got - want) * (got - want);
        all[side] += want * want;
      }
    }
  }
  double rms(Side side) const {
    const auto i = static_cast<size_t>(side);
    return all[i] == 0 ? 0 : std::sqrt(error[i] / all[i]);
  }
};

struct Got {
  FetchReply hit;
  Checked checked;
  uint64_t us = 0;
};

Result<Got> get(Opened& at) {
  Got out;
  FetchRequest request;
  request.model = at.model.model;
  request.query.tokens = at.tokens;
  request.query.tokens.push_back(0);  // a hit never has the last one
  request.form = FetchForm::f32;
  const Clock::time_point start = Clock::now();
  KV_ASSIGN_OR_RETURN(out.hit, at.client->fetch(request, deadline_in(kPatience)));
  out.us = since_us(start);
  const Rows rows(at.tokens);
  const auto tokens = static_cast<uint32_t>(at.tokens.size());
  for (const FetchedObject& found : out.hit.lease.prefix().objects) {
    for (const Plane& p : found.object->planes) {
      if (p.dtype != DType::f32 || p.bits != 0) return Status(StatusCode::internal, "no f32 came");
      out.checked.add(p, rows, std::min(found.end_token, tokens));
    }
  }
  return out;
}

Exit run_get(const TryArguments& args) {
  auto at = open(args);
  if (!at.ok()) return report_error(at.status());
  auto got = get(*at);
  if (!got.ok()) return report_error(got.status());
  const Checked& c = got->checked;
  const uint32_t n = got->hit.tokens;
  const bool whole = c.changed == 0 && c.exact == uint64_t{n} * kRowDim;
  const double k = c.rms(Side::k), v = c.rms(Side::v);
  const Exit code = n == 0 ? Exit::not_found : whole ? Exit::ok : Exit::failed;
  if (args.given.json) {
    print_json({{"namespace", at->ns},
                {"model", kModelName},
                {"asked", at->tokens.size()},
                {"tokens", n},
                {"tier", to_string(got->hit.tier)},
                {"reason", got->hit.reason},
                {"objects", got->hit.lease.prefix().objects.size()},
                {"exact", whole},
                {"key_error", k},
                {"value_error", v},
                {"us", got->us}});
    return code;
  }
  const std::string from = n > 0 ? std::string("came from ") + to_string(got->hit.tier) : "came";
  std::printf("%u of %zu tokens of model %s in namespace %s %s in %s\n", n, at->tokens.size(),
              kModelName, printable(at->ns).c_str(), from.c_str(), ms(got->us).c_str());
  if (!got->hit.reason.empty()) std::printf("%s\n", printable(got->hit.reason).c_str());
  if (n == 0) {
    std::puts("`cachectl why` says why");
    return code;
  }
  std::printf("layer 1, kept as it comes: %s\n",
              whole ? "each value is that of put" : "WRONG: some value is not that of put");
  std::printf("layer 0, coded: keys %.2f %%, values %.2f %% off (rms)\n", 100 * k, 100 * v);
  return code;
}

void add(CLI::App& app, std::function<Exit()>& chosen, const char* name, const char* about,
         Exit (*run)(const TryArguments&), bool entry) {
  auto args = std::make_shared<TryArguments>();
  CLI::App* verb = app.add_subcommand(name, about);
  add_place(*verb, args->given, "exact values for programs");
  if (entry) {
    verb->add_option("TOKENS", args->file,
                     "a file with a JSON list of token ids; none: some that are made up");
    verb->add_option("--tokens", args->tokens, "how many to make up")
        ->check(CLI::Range(1u, kMostTokens))
        ->capture_default_str();
  }
  verb->add_option("--namespace", args->ns, "as a client of this one");
  if (entry && run == run_put) {
    verb->add_option("--label", args->label, "what `ls` calls it");
  }
  verb->callback([&chosen, args, run] {
    take_operand(args->given, args->file, false);
    chosen = [args, run] { return run(*args); };
  });
}

}  // namespace

void add_try(CLI::App& app, std::function<Exit()>& chosen) {
  add(app, chosen, "ping", "whether a daemon answers, and how fast", run_ping, false);
  add(app, chosen, "put", "try a daemon: store a prompt of a small model", run_put, true);
  add(app, chosen, "get", "try a daemon: read back what put stored, and check it", run_get, true);
}

}  // namespace kv::cachectl
