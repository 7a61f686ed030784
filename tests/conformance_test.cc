// The cases of tests/conformance over the socket with the C++ client, and in process, where the
// same interface has no socket; python/ runs the same table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/cachesvc_server.h"
#include "tests/support/own_memory_testing.h"

namespace kv {
namespace {

using nlohmann::json;

const json& table() {
  static const json read = json::parse(std::ifstream(KV_CONFORMANCE_FILE));
  return read;
}

// How rows pass: hits by the socket, hits read in the service's RAM, stores read in the client's
// memory and hits written there, or nothing passes as the cache is embedded.
enum class Rows { streamed, mapped, own_memory, in_process };
constexpr const char* kRows[] = {" streamed", " mapped", " own memory", " in process"};

struct Case {
  json fields;
  Rows rows;
};

// ctest shows it beside the test's name.
void PrintTo(const Case& c, std::ostream* out) { *out << c.fields.at("model"); }

template <typename T>
T word_of(const std::string& word, std::initializer_list<T> all) {
  for (T value : all) {
    if (word == to_string(value)) return value;
  }
  ADD_FAILURE() << word;
  return *all.begin();
}

DType dtype_of(const std::string& word) {
  return word_of(word, {DType::f16, DType::f32, DType::bf16});
}

PartSpec part_of(const json& given) {
  PartSpec p;
  p.kind = word_of(given.at("kind"), {PartKind::full, PartKind::window, PartKind::chunk,
                                      PartKind::latent, PartKind::pooled, PartKind::state});
  p.dtype = dtype_of(given.value("dtype", "f16"));
  p.heads = given.value("heads", 0u);
  p.k_dim = given.value("k_dim", 0u);
  p.v_dim = given.value("v_dim", 0u);
  p.window = given.value("window", 0u);
  p.keep = given.value("keep", 0u);
  p.chunk = given.value("chunk", 0u);
  p.rate = given.value("rate", 0u);
  p.overlap = given.value("overlap", false);
  p.snapshot = static_cast<SnapshotPlace>(given.value("snapshot", 0));
  return p;
}

ModelSpec model_named(const std::string& name) {
  std::vector<LayerSpec> layers;
  for (const json& parts : table().at("models").at(name)) {
    LayerSpec& layer = layers.emplace_back();
    for (const json& part : parts) layer.parts.push_back(part_of(part));
  }
  return model_of(std::move(layers));
}

Query query_of(const json& step) {
  Query query;
  for (const json& range : step.value("tokens", json::array())) {
    for (Token t = range[0]; t < range[1]; ++t) query.tokens.push_back(t);
  }
  for (const json& extra : step.value("extras", json::array())) {
    const std::string text = extra[1];
    query.extras.push_back({extra[0], {text.begin(), text.end()}});
  }
  return query;
}

std::shared_ptr<const Profile> profile_of(const ModelSpec& model, const json& step) {
  if (!step.contains("profile")) return nullptr;
  const json& given = step["profile"];
  const uint8_t word = given.value("transforms", false) ? kTransformWord : 0;
  Profile profile = *make_profile(model, word, given.at("block_tokens"));
  profile.raw_dtype = dtype_of(given.value("raw", "f16"));
  return std::make_shared<const Profile>(profile);
}

Selection selection_of(const json& step) {
  const json given = step.value("select", json::object());
  auto range = [&](const char* name) -> Selection::Range {
    if (!given.contains(name)) return {};
    return {given.at(name).at(0), given.at(name).at(1)};
  };
  return {given.value("from_token", 0u), range("layers"), range("parts"), range("heads")};
}

// The end of a step's call: soon, or now.
Until until_of(const json& step) {
  if (!step.value("cancelled", false)) return soon();
  auto stop = std::make_unique<std::stop_source>();  // one on the stack makes GCC 12 warn at -Og
  stop->request_stop();
  return {soon(), stop->get_token()};
}

uint64_t values_of(const FetchReply& reply) {
  uint64_t values = 0;
  for (const FetchedObject& o : reply.lease.prefix().objects) {
    for (const Plane& p : o.object->planes) values += uint64_t{p.rows()} * p.heads * p.dim;
  }
  return values;
}

class Conformance : public ServerTest, public ::testing::WithParamInterface<Case> {
 protected:
  // The service, or the embedded cache with the same settings.
  void begin() {
    if (GetParam().rows != Rows::in_process) return start({"--set", "codec.block_tokens=256"});
    cache_.reset();  // a directory has one owner
    CacheOptions options = small_options(dir_.store());
    options.coding = {0, 0};
    options.coding.block_tokens = 256;
    cache_ = open_cache(options, kNamespace);
    ASSERT_TRUE(cache_);
  }

  // A step's reply, by the names of the table.
  json run(const json& step, const ModelSpec& model) {
    if (step.at("call") == "restart") return restarted();
    SocketClientOptions options;
    options.map_segments = GetParam().rows != Rows::streamed;
    if (GetParam().rows == Rows::own_memory) options.memory = *OwnMemory::create(16u << 20);
    options.max_reply_bytes = step.value("max_reply_bytes", options.max_reply_bytes);
    auto client = connect(options);
    if (!client.ok()) return {{"error", client.status().to_string()}};
    const std::string call = step.at("call");
    if (call == "wait") {
      std::this_thread::sleep_for(std::chrono::seconds(step.at("seconds")));
      return json::object();
    }
    if (call == "open") return opened(**client, model, step);
    if (call == "erase" && !step.contains("tokens")) {
      return erased((*client)->erase(0, {}, soon()));
    }
    Bench bench = Bench::open(**client, model);
    const Query query = query_of(step);
    if (call == "store") return stored(bench, query, step, options.memory);
    if (call == "fetch") return fetched(bench, query, step, options.memory);
    if (call == "hold") return held(bench, query, step);
    if (call == "retain") return retained(bench, query, step);
    if (call == "expire") return expired(bench, query, step);
    if (call == "renew") return renewed(**client, step);
    if (call == "release") return released(**client, step);
    if (call == "prefetch") return prefetched(bench, query, step);
    if (call == "demote") return demoted(bench, query, step);
    if (call == "erase") return erased((*client)->erase(bench.opened.model, query, soon()));
    const QueryRequest request{bench.opened.model, query, bench.opened.realm.profile};
    if (call == "erase_entry") return erased((*client)->erase_entry(request, soon()));
    auto found = (*client)->lookup(request, soon());
    if (!found.ok()) return failed(found.status());
    return {{"tokens", found->tokens}, {"common", found->common}};
  }

 private:
  static constexpr const char* kNamespace = "conformance";

  Result<std::unique_ptr<Client>> connect(const SocketClientOptions& options) {
    if (cache_) return cache_->connect(kNamespace);
    KV_ASSIGN_OR_RETURN(auto client, SocketClient::connect(socket(), kNamespace, options));
    return std::unique_ptr<Client>(std::move(client));
  }

  json restarted() {
    if (daemon_) daemon_->kill();
    begin();
    return json::object();
  }

  static json failed(const Status& status) { return {{"error", to_string(status.code())}}; }

  static json opened(Client& client, const ModelSpec& model, const json& step) {
    OpenRequest request;
    request.model = model;
    request.profile = profile_of(model, step);
    request.replace = step.value("replace", false);
    auto reply = client.open(request, soon());
    if (!reply.ok()) return failed(reply.status());
    return {{"profile", reply->realm.profile == request.profile->id() ? "given" : "other"}};
  }

  static json erased(const Result<uint64_t>& removed) {
    if (!removed.ok()) return failed(removed.status());
    return {{"removed", *removed > 0}};
  }

  uint64_t hold_of(const json& step) const {
    return step.contains("hold") ? holds_.at(step["hold"]) : 0;
  }

  json held(Bench& bench, const Query& query, const json& step) {
    const std::chrono::milliseconds time(step.at("time_ms"));
    auto reply =
        bench.client.hold({bench.opened.model, query, bench.opened.realm.profile, time}, soon());
    if (!reply.ok()) return failed(reply.status());
    holds_[step.at("as")] = reply->number;
    return {{"held", reply->number != 0}, {"tokens", reply->found.tokens}};
  }

  json retained(Bench& bench, const Query& query, const json& step) {
    const std::chrono::milliseconds time(step.at("time_ms"));
    auto reply =
        bench.client.retain({bench.opened.model, query, bench.opened.realm.profile, time}, soon());
    if (!reply.ok()) return failed(reply.status());
    holds_[step.at("as")] = reply->number;
    return {{"outcome", to_string(reply->outcome)}, {"tokens", reply->tokens}};
  }

  static json expired(Bench& bench, const Query& query, const json& step) {
    auto reply = bench.client.expire(
        {bench.opened.model, query, bench.opened.realm.profile, step.value("whole", false),
         std::chrono::seconds(step.value("seconds", 0))},
        soon());
    if (!reply.ok()) return failed(reply.status());
    return {{"outcome", to_string(reply->outcome)}, {"objects", reply->objects}};
  }

  json renewed(Client& client, const json& step) const {
    const std::chrono::milliseconds time(step.at("time_ms"));
    auto left = client.renew(hold_of(step), time, soon());
    if (!left.ok()) return failed(left.status());
    return {{"renewed", left->count() > 0}};
  }

  json released(Client& client, const json& step) const {
    const Status status = client.release(hold_of(step), soon());
    return status.ok() ? json{{"released", true}} : failed(status);
  }

  json prefetched(Bench& bench, const Query& query, const json& step) const {
    const PrefetchRequest request{bench.opened.model, query, bench.opened.realm.profile,
                                  step.value("wait", false), hold_of(step)};
    auto found = bench.client.prefetch(request, until_of(step));
    if (!found.ok()) return failed(found.status());
    return {{"tokens", found->tokens}, {"common", found->common}, {"tier", to_string(found->tier)}};
  }

  json demoted(Bench& bench, const Query& query, const json& step) const {
    auto reply = bench.client.demote(
        {bench.opened.model, query, bench.opened.realm.profile, hold_of(step)}, soon());
    if (!reply.ok()) return failed(reply.status());
    return {{"outcome", to_string(reply->outcome)}, {"tokens", reply->tokens}};
  }

  static std::vector<uint32_t> restorable(const CommitReply& reply) {
    std::vector<uint32_t> ends;
    for (const NamedEnd& end : reply.ends) {
      if (end.restorable) ends.push_back(end.tokens);
    }
    return ends;
  }

  // `memory` null: rows are sent.
  static json stored(Bench& bench, const Query& query, const json& step,
                     const std::shared_ptr<OwnMemory>& memory) {
    const auto ends = step.value("ends", std::vector<uint32_t>());
    ReserveRequest request{bench.opened.model,
                           bench.opened.realm.profile,
                           query,
                           ends,
                           {step.value("prefill_ms", 0u), step.value("label", "")}};
    auto reserved = bench.client.reserve(request, until_of(step));
    if (!reserved.ok()) return failed(reserved.status());
    uint64_t at = 0;
    for (const Need& need : reserved->needs) {
      PutRequest put = make_put(bench.model, bench.opened.profile->block_tokens, query.tokens, need,
                                reserved->reservation);
      if (memory) move_rows(memory, put, at);
      if (Status s = bench.client.put(std::move(put), soon()); !s.ok()) return failed(s);
    }
    const auto level = word_of(step.value("wait_for", "accepted"),
                               {Durability::accepted, Durability::spilled, Durability::durable});
    auto reply = bench.client.commit(reserved->reservation, level, soon());
    if (!reply.ok()) return failed(reply.status());
    return {{"level", to_string(std::min(reply->level, level))},
            {"objects", reserved->needs.size()},
            {"lost", reply->lost.size()},
            {"ends", restorable(*reply)}};
  }

  // A hit's rows and states, one object's after the other's.
  static std::vector<uint8_t> payload_of(const FetchReply& reply) {
    std::vector<uint8_t> all;
    auto add = [&](const Bytes& bytes) {
      all.insert(all.end(), bytes.span().begin(), bytes.span().end());
    };
    for (const FetchedObject& o : reply.lease.prefix().objects) {
      for (const Plane& p : o.object->planes) add(p.bytes);
      for (const StateBlob& s : o.object->states) add(s.bytes);
    }
    return all;
  }

  // In process a hit is fetched into memory of the caller's too, in pieces.
  void fetch_again(Bench& bench, FetchRequest request, const FetchReply& first) const {
    const std::vector<uint8_t> expected = payload_of(first);
    if (!cache_ || expected.empty()) return;
    std::vector<uint8_t> there(expected.size() + 1, 0xee);
    const std::span all(there);
    const size_t half = expected.size() / 2;
    request.into = {all.first(half), all.subspan(half, 0), all.subspan(half)};
    auto reply = bench.client.fetch(request, soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_EQ(reply->tokens, first.tokens);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), there.begin()));
    EXPECT_EQ(there.back(), 0xee);
    request.into = {all.first(expected.size() - 1)};
    EXPECT_EQ(bench.client.fetch(request, soon()).status().code(), StatusCode::resource_exhausted);
  }

  // `memory`: hits are written there.
  json fetched(Bench& bench, const Query& query, const json& step,
               const std::shared_ptr<OwnMemory>& memory) const {
    static const std::map<std::string, FetchForm> forms = {{"stored", FetchForm::stored},
                                                           {"f32", FetchForm::f32},
                                                           {"f16", FetchForm::f16},
                                                           {"bf16", FetchForm::bf16}};
    FetchRequest request;
    request.model = bench.opened.model;
    request.hold = hold_of(step);
    if (request.hold == 0) request.query = query;
    request.form = forms.at(step.value("form", "f16"));
    request.max_tokens = step.value("max_tokens", request.max_tokens);
    request.round_to_block = step.value("round_to_block", false);
    request.selection = selection_of(step);
    if (memory) request.into = {{memory->data(), memory->bytes()}};
    auto reply = bench.client.fetch(request, until_of(step));
    if (!reply.ok()) return failed(reply.status());
    fetch_again(bench, request, *reply);
    const bool whole = request.selection == Selection();
    if (reply->tokens > 0 && whole) bench.expect_serves(query.tokens, *reply);
    return {{"tokens", reply->tokens},
            {"common", reply->common},
            {"tier", to_string(reply->tier)},
            {"newest", to_string(reply->form)},
            {"values", values_of(*reply)}};
  }

  std::unique_ptr<TieredCache> cache_;     // null: the service has it
  std::map<std::string, uint64_t> holds_;  // their numbers, by the table's names
};

TEST_P(Conformance, EveryStepAnswersAsTheTableSays) {
  begin();
  if (HasFatalFailure()) return;
  const json& given = GetParam().fields;
  const ModelSpec model = model_named(given.at("model"));
  for (const json& step : given.at("steps")) {
    const json reply = run(step, model);
    for (const auto& [key, expected] : step.at("expect").items()) {
      EXPECT_EQ(reply.value(key, json()), expected) << step << "\n" << reply;
    }
    EXPECT_EQ(reply.contains("error"), step["expect"].contains("error")) << step << "\n" << reply;
    if (HasFailure()) return;
  }
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.fields.at("name");
  name += kRows[static_cast<size_t>(info.param.rows)];
  std::erase_if(name, [](char c) { return c != ' ' && !std::isalnum(c); });
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// A reply's bytes are limited where they travel: in process none do.
bool names_a_limit_of_replies(const json& fields) {
  const json& steps = fields.at("steps");
  return std::any_of(steps.begin(), steps.end(),
                     [](const json& step) { return step.contains("max_reply_bytes"); });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const json& fields : table().at("cases")) {
    for (Rows rows : {Rows::streamed, Rows::mapped, Rows::own_memory, Rows::in_process}) {
      if (rows == Rows::in_process && names_a_limit_of_replies(fields)) continue;
      all.push_back({fields, rows});
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Table, Conformance, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace kv
