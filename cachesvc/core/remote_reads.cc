// Questions, and what is read after them.
#include "cachesvc/core/remote_reads.h"

#include <algorithm>
#include <utility>

#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/needs.h"
#include "cachesvc/core/object_buffer.h"
#include "cachesvc/core/remote_names.h"
#include "cachesvc/core/to_loop.h"

namespace kv {
namespace {

constexpr size_t kMostNames = 2048;   // of one question (kMaxRemoteNames)
constexpr size_t kReadsAtOnce = 8;    // of one call
constexpr size_t kMostCompared = 16;  // bringings under way, with the query of a call
constexpr auto kQuestionTime = std::chrono::milliseconds(250);
constexpr auto kProbeTime = std::chrono::seconds(1);

Need need_of(const RemoteCandidate& c, uint32_t block) {
  const ObjectName& name = c.name.object;
  Need need{name.kind, c.first_token / block, name.group, name.first_row, name.end_row, true};
  if (is_main(name.kind)) need.first_row = c.first_token, need.end_row = c.end_token;
  return need;
}

}  // namespace

struct RemoteReads::Finding {
  std::shared_ptr<RemoteFinding> out = std::make_shared<RemoteFinding>();
  uint32_t tokens = 0;  // local tiers restore
  RemotePath path;
  Deadline deadline{};  // of the question
  std::vector<RemoteCandidate> asked;
  std::function<void(FindingPtr)> done;
};

bool RemoteReads::may_help(const RemoteWant& want, uint32_t tokens) {
  if (!writes_ || env_.draining()) return false;
  const auto all = static_cast<uint32_t>(want.query->tokens.size());
  if (all == 0) return false;
  const uint32_t most = std::min(all - 1, want.limits.max_tokens);
  const uint32_t least = std::max(1u, env_.options.remote.min_tokens);
  if (most < tokens + least && !being_brought(want, tokens)) return false;
  if (writes_.erasing(want.realm->realm.ns)) return false;
  if (breaker_.state() == BreakerState::closed) return true;
  if (breaker_.allow(Clock::now())) probe();
  return false;
}

// More than `tokens` of the query is on its way for another call. Its blocks are placed before its
// tail: a call between the two waits for the tail, however short it is.
bool RemoteReads::being_brought(const RemoteWant& want, uint32_t tokens) const {
  size_t looked_at = 0;
  for (const FindingPtr& each : bringing_) {
    if (++looked_at > kMostCompared) break;
    if (each->want.realm != want.realm || each->plan.tokens <= tokens) continue;
    const auto &a = each->want.query->tokens, &b = want.query->tokens;
    const size_t most = std::min({a.size(), b.size(), size_t{tokens} + 1});
    if (most > tokens && std::equal(a.begin(), a.begin() + tokens + 1, b.begin())) return true;
  }
  return false;
}

// One question that nobody waits for.
void RemoteReads::probe() {
  ++counts_.probes;
  writes_.tier().find({probed_}, Clock::now() + kProbeTime,
                      to_loop<std::vector<RemoteFound>>(env_, [this](const auto& found) {
                        found[0].state == RemoteFound::State::unreached
                            ? breaker_.failed(Clock::now())
                            : breaker_.answered();
                      }));
}

void RemoteReads::find(RemoteWant want, uint32_t tokens, std::function<void(FindingPtr)> done) {
  auto finding = std::make_shared<Finding>();
  finding->tokens = tokens;
  finding->done = std::move(done);
  finding->out->erases = writes_.erases(want.realm->realm.ns);
  RemoteFinding& out = *finding->out;
  out.want = std::move(want);
  env_.on_worker([realm = out.want.realm->realm, block = out.want.realm->block_tokens(),
                  query = out.want.query] { return remote_path(realm, block, *query); },
                 [this, finding](RemotePath path) {
                   finding->path = std::move(path);
                   finding->deadline =
                       std::min(finding->out->want.deadline, Clock::now() + kQuestionTime);
                   list(finding);
                 });
}

// Objects whose names can't be computed are listed at their blocks.
void RemoteReads::list(const std::shared_ptr<Finding>& finding) {
  const RealmState& realm = *finding->out->want.realm;
  std::vector<RemoteList> lists = remote_lists(realm, finding->path);
  if (lists.empty()) return ask(finding, {});
  auto listed = [this, finding](std::vector<RemoteListed> answer) {
    const RealmState& of = *finding->out->want.realm;
    env_.on_worker(
        [finding, answer = std::move(answer), its = of.realm, block = of.block_tokens()] {
          return remote_listed(its, block, *finding->out->want.query, finding->path, answer);
        },
        [this, finding](const std::vector<RemoteListedName>& names) { ask(finding, names); });
  };
  writes_.tier().list(std::move(lists), finding->deadline,
                      to_loop<std::vector<RemoteListed>>(env_, std::move(listed)));
}

// Asks for what is not here.
void RemoteReads::ask(const std::shared_ptr<Finding>& finding,
                      const std::vector<RemoteListedName>& listed) {
  RemoteFinding& out = *finding->out;
  const RealmState& realm = *out.want.realm;
  const auto tokens = static_cast<uint32_t>(out.want.query->tokens.size());
  const uint32_t interval =
      block_end_interval(*realm.model, *realm.profile, env_.options.block_end_interval, tokens);
  std::vector<RemoteName> names;
  for (RemoteCandidate& c : remote_candidates(realm, finding->path, listed, interval)) {
    if (index_.find_usable(c.name.object)) continue;
    if (names.size() == kMostNames) break;
    names.push_back(c.name);
    finding->asked.push_back(std::move(c));
  }
  if (names.empty()) return finding->done(nullptr);
  ++counts_.questions;
  probed_ = names[0];
  writes_.tier().find(std::move(names), finding->deadline,
                      to_loop<std::vector<RemoteFound>>(
                          env_, [this, finding](const auto& found) { answered(*finding, found); }));
}

void RemoteReads::answered(Finding& finding, const std::vector<RemoteFound>& found) {
  const bool silent = std::all_of(found.begin(), found.end(), [](const RemoteFound& f) {
    return f.state == RemoteFound::State::unreached;
  });
  if (silent) {
    ++counts_.unreached;
    breaker_.failed(Clock::now());
    return finding.done(nullptr);
  }
  if (breaker_.state() == BreakerState::closed) breaker_.answered();
  auto more = judge(finding, found);
  if (more) ++counts_.found;
  finding.done(more);
}

// Plans with what is there, as if it were here. Null: no longer than without.
RemoteReads::FindingPtr RemoteReads::judge(Finding& finding,
                                           const std::vector<RemoteFound>& found) {
  RemoteFinding& out = *finding.out;
  RealmState& realm = *out.want.realm;
  std::vector<Holding> more;
  std::vector<size_t> place;    // of each holding: which candidate
  uint32_t chain = UINT32_MAX;  // the first token of a block that is nowhere
  for (size_t i = 0; i < found.size(); ++i) {
    const RemoteCandidate& c = finding.asked[i];
    const bool there = found[i].state == RemoteFound::State::there;
    if (!there && c.name.object.kind == ObjectKind::block) chain = std::min(chain, c.first_token);
    if (!there || c.first_token > chain) continue;
    Holding like;
    like.common = c.end_token;
    like.tier = Tier::remote;
    const bool in_tail = c.end_token % realm.block_tokens() != 0;
    if (in_tail && c.name.object.kind != ObjectKind::snapshot) like.place = HoldingPlace::tail;
    like.form = in_tail ? HitForm::exact_tail : HitForm::coded;
    append_holdings(*realm.groups.shared(), c.name.object, c.first_token, c.end_token, like, more);
    place.resize(more.size(), i);
  }
  PlanOptions options = plan_options(env_, *out.want.query);
  options.limits.max_tokens = out.want.limits.max_tokens;
  options.limits.round_to_block = out.want.limits.round_to_block;
  options.more = &more;
  auto hit = plan(realm, *out.want.query, options);
  if (!hit.ok() || hit->plan.tokens <= finding.tokens) return nullptr;
  std::vector<bool> used(found.size());
  for (size_t i : hit->more_used) used[place[i]] = true;
  for (size_t i = 0; i < found.size(); ++i) {
    const RemoteCandidate& c = finding.asked[i];
    const bool block = c.name.object.kind == ObjectKind::block;  // the others hang on it
    if (found[i].state != RemoteFound::State::there || c.first_token > chain) continue;
    if (!(block ? c.first_token < hit->plan.tokens : bool{used[i]})) continue;
    const Need need = need_of(c, realm.block_tokens());
    const uint64_t planes = need_bytes(*realm.model, *realm.profile, realm.groups, need);
    const uint64_t stored = std::max(planes, found[i].front.file_bytes);
    out.pieces.push_back({found[i], stored});
  }
  out.plan = std::move(hit->plan);
  out.common = hit->common;
  return out.pieces.empty() ? nullptr : finding.out;
}

struct RemoteReads::Bringing {
  FindingPtr finding;
  std::function<void()> done;
  std::shared_ptr<RoomCharges> room;
  Pins pins;
  struct Came {
    bool is = false, own = false;
    Result<RamObject> object = RamObject();
  };
  std::vector<Came> came;  // by piece
  size_t next = 0;         // the first piece that is not asked for
  size_t placed = 0;       // pieces that are in the index
  size_t under_way = 0;
  bool ended = false;  // nothing more is asked for or placed
};

// Leaves out what this namespace's RAM can't have beside others.
void RemoteReads::fit(RemoteFinding& finding) const {
  const uint64_t most = room_.share_of(finding.want.realm->share) / 2;
  uint64_t bytes = 0;
  size_t fits = 0;
  for (; fits < finding.pieces.size(); ++fits) {
    bytes += RamPool::slab_bytes(finding.pieces[fits].stored_bytes);
    if (bytes > most) break;
  }
  finding.pieces.resize(fits);
}

void RemoteReads::bring(const FindingPtr& finding, std::function<void()> done) {
  fit(*finding);
  auto bringing = std::make_shared<Bringing>();
  bringing->finding = finding;
  bringing_.push_back(finding);
  bringing->done = [this, finding, done = std::move(done)] {
    bringing_.remove(finding);
    done();
  };
  bringing->came.resize(finding->pieces.size());
  bringing->pins = Pins(env_, index_);
  Room room;
  const RealmState& realm = *finding->want.realm;
  room.share = realm.share;
  uint64_t largest = 0;
  for (const RemoteFinding::Piece& piece : finding->pieces) {
    room.stored += RamPool::slab_bytes(piece.stored_bytes);
    room.index += most_index_bytes(realm.block_tokens());
    largest = std::max(largest, piece.found.front.file_bytes);
  }
  room.promotion = largest * std::min(kReadsAtOnce, finding->pieces.size());
  if (room.stored == 0) return bringing->done();
  room_.with_room(
      room, finding->want.deadline,
      [this, bringing](Result<std::shared_ptr<RoomCharges>> got) {
        if (!got.ok()) return bringing->done();
        bringing->room = *got;
        read_some(bringing);
      },
      finding->want.call);
}

void RemoteReads::read_some(const BringingPtr& bringing) {
  Bringing& b = *bringing;
  const RemoteWant& want = b.finding->want;
  if (want.call && want.call->finished()) b.ended = true;
  if (Clock::now() >= want.deadline) b.ended = true;
  while (!b.ended && b.next < b.came.size() && b.under_way < kReadsAtOnce) {
    ++b.under_way;
    read(bringing, b.next++);
  }
  if (b.under_way > 0 || !b.done) return;
  b.room.reset();
  auto done = std::exchange(b.done, nullptr);
  done();  // a plan follows at once, which pins what it uses
  b.pins.release();
  env_.progress();
}

void RemoteReads::read(const BringingPtr& bringing, size_t at) {
  const RemoteFound& found = bringing->finding->pieces[at].found;
  const ObjectName& name = found.name.object;
  auto other = reads_.find(name);
  if (other != reads_.end()) {
    ++counts_.joins;
    other->second.push_back([this, bringing, at] {
      const Record* r = index_.find_usable(bringing->finding->pieces[at].found.name.object);
      came(bringing, at, r ? Result<RamObject>(RamObject()) : Status(StatusCode::not_found, ""));
    });
    return;
  }
  reads_[name];
  bringing->came[at].own = true;
  writes_.tier().get(found, bringing->finding->want.deadline,
                     to_loop<Result<FileImage>>(env_, [this, bringing, at](auto image) {
                       if (!image.ok()) return came(bringing, at, image.status());
                       unpack(bringing, at, std::move(*image));
                     }));
}

void RemoteReads::unpack(const BringingPtr& bringing, size_t at, FileImage image) {
  const RemoteFinding::Piece& piece = bringing->finding->pieces[at];
  const uint64_t share = RamPool::slab_bytes(piece.stored_bytes);
  auto charge = std::make_shared<Charge>(
      bringing->room->stored.split(std::min(share, bringing->room->stored.bytes())));
  counts_.bytes += image.stored_bytes();
  auto moved = std::make_shared<FileImage>(std::move(image));
  const RealmState& realm = *bringing->finding->want.realm;
  env_.on_worker(
      [moved, charge, pool = env_.pool, model = realm.model, profile = realm.profile] {
        return into_pool(std::move(*moved), *pool, *charge, *model, *profile);
      },
      [this, bringing, at](Result<RamObject> object) { came(bringing, at, std::move(object)); });
}

void RemoteReads::came(const BringingPtr& bringing, size_t at, Result<RamObject> object) {
  Bringing& b = *bringing;
  --b.under_way;
  if (!object.ok()) ++counts_.failures;
  b.came[at].is = true;
  b.came[at].object = std::move(object);
  place_some(b);
  read_some(bringing);
}

// Places what has come, in order. After a gap nothing more: nobody could reach it. One who waits
// for a piece may have one that this bringing waits for: then its next pieces are placed within.
void RemoteReads::place_some(Bringing& b) {
  while (b.placed < b.came.size() && b.came[b.placed].is) {
    const size_t at = b.placed++;
    const ObjectName name = b.finding->pieces[at].found.name.object;
    if (!b.ended) b.ended = !place(b, at);
    b.came[at].object = RamObject();
    if (!b.came[at].own) continue;
    auto it = reads_.find(name);
    auto waiters = std::move(it->second);
    reads_.erase(it);
    for (auto& waiter : waiters) waiter();
  }
}

bool RemoteReads::place(Bringing& b, size_t at) {
  const RemoteFinding& finding = *b.finding;
  const std::string& ns = finding.want.realm->realm.ns;
  if (!b.came[at].object.ok() || env_.draining()) return false;
  if (writes_.erases(ns) != finding.erases || !eraser_.may_publish(ns)) return false;
  const RamObject object = *b.came[at].object;
  const ObjectName& name = finding.pieces[at].found.name.object;
  if (Record* there = index_.find_usable(name)) {
    b.pins.add(*there);
    return true;
  }
  if (!object) return false;  // another call's, which has gone
  const uint64_t bytes = index_bytes(name.kind, object->tokens);
  if (bytes > b.room->index.bytes()) return false;
  Record* r = index_.add(*finding.want.realm, *object, b.room->index.split(bytes));
  if (!r) return false;
  records_.given(*r, object);
  r->shared = true;
  note_birth(env_, *r);
  b.pins.add(*r);
  if (name.kind != ObjectKind::snapshot) index_.relink(*finding.want.realm, name.id);
  if (env_.options.spill_when == SpillWhen::commit) (void)spiller_.ask(*r);
  ++counts_.objects;
  return true;
}

}  // namespace kv
