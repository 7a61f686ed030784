// Waiting, reuse and loss of connections.
#include "proto/socket_pool.h"

#include <unistd.h>

#include <algorithm>

#include "proto/memory_message.h"

namespace kv {

uint32_t timeout_ms(Deadline deadline) {
  using std::chrono::milliseconds;
  auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  int64_t ms = std::clamp<int64_t>(left.count(), 1, 24 * 3600 * 1000);
  return static_cast<uint32_t>(ms - std::min<int64_t>(ms / 10, 100));
}

SocketPool::SocketPool(std::string path, std::string ns, SocketClientOptions options)
    : process_(::getpid()),
      path_(std::move(path)),
      options_(std::move(options)),
      bodies_(std::make_shared<ReplyBodies>(options_.recycle_bytes)) {
  hello_.ns = std::move(ns);
  hello_.program = options_.program;
  hello_.token = options_.token;
  hello_.features = options_.map_segments ? kFeatureSegments : 0;
  if (options_.memory) hello_.features |= kFeatureMemory;
}

BootToken SocketPool::boot_token() const {
  std::lock_guard lock(mutex_);
  return boot_;
}

SocketPool::Use::~Use() {
  if (c_) pool_->release(c_);
}

Status SocketPool::check_process() const {
  if (::getpid() == process_) return {};
  return {StatusCode::unavailable, "this client was made by process " + std::to_string(process_) +
                                       "; after a fork the child makes a client of its own"};
}

// Precondition: mutex_ is held, and some connections are idle.
std::vector<SocketPool::ConnectionPtr>::iterator SocketPool::least_reserved() {
  std::map<const SocketConnection*, size_t> held;
  for (const auto& [id, r] : reservations_) ++held[r.connection.get()];
  return std::min_element(idle_.begin(), idle_.end(), [&](const auto& a, const auto& b) {
    return held[a.get()] < held[b.get()];
  });
}

// Waits for a change. Returns: deadline_exceeded, cancelled.
Status SocketPool::wait(std::unique_lock<std::mutex>& lock, const Until& until, const char* what) {
  bool again = false;
  changed_.wait_until(lock, until.stop, until.deadline, [&] { return std::exchange(again, true); });
  if (until.stop.stop_requested()) return cancelled();
  if (std::chrono::steady_clock::now() < until.deadline) return {};
  return {StatusCode::deadline_exceeded, what};
}

// Precondition: mutex_ is not held.
Result<SocketPool::Use> SocketPool::use(ConnectionPtr c, const Until& until) {
  Use taken(*this, std::move(c));
  KV_RETURN_IF_ERROR(taken->stop().begin(until.stop));
  return taken;
}

Result<SocketPool::Use> SocketPool::acquire(const Until& until) {
  KV_RETURN_IF_ERROR(check_process());
  std::unique_lock lock(mutex_);
  while (true) {
    while (!idle_.empty()) {
      auto chosen = least_reserved();
      ConnectionPtr c = *chosen;
      idle_.erase(chosen);
      if (c->stale()) {
        forget(c);
        continue;
      }
      lock.unlock();
      return use(std::move(c), until);
    }
    if (connections_ < options_.max_connections) break;
    KV_RETURN_IF_ERROR(wait(lock, until, "every connection is in use"));
  }
  ++connections_;
  lock.unlock();
  auto c = SocketConnection::open(path_, hello_, bodies_,
                                  std::min(until.deadline, deadline_in(options_.connect_timeout)));
  lock.lock();
  if (c.ok()) {
    boot_ = (*c)->hello().boot;
    lock.unlock();
    return use(std::move(*c), until);
  }
  --connections_;
  changed_.notify_all();
  return c.status();
}

Result<SocketPool::Use> SocketPool::acquire_for(uint64_t id, const Until& until, uint64_t& remote) {
  KV_RETURN_IF_ERROR(check_process());
  std::unique_lock lock(mutex_);
  while (true) {
    auto it = reservations_.find(id);
    if (it == reservations_.end()) {
      return Status(StatusCode::not_found, "reservation " + std::to_string(id) +
                                               " is not there, or went with its connection");
    }
    remote = it->second.remote;
    it->second.used = std::chrono::steady_clock::now();
    auto idle = std::find(idle_.begin(), idle_.end(), it->second.connection);
    if (idle != idle_.end()) {
      ConnectionPtr c = *idle;
      idle_.erase(idle);
      lock.unlock();
      return use(std::move(c), until);
    }
    KV_RETURN_IF_ERROR(wait(lock, until, "the reservation's connection is in use"));
  }
}

bool SocketPool::reservations_full() {
  std::lock_guard lock(mutex_);
  if (reservations_.size() < options_.max_reservations) return false;
  const auto before = std::chrono::steady_clock::now() - options_.abandoned_after;
  std::erase_if(reservations_, [&](const auto& r) { return r.second.used < before; });
  return reservations_.size() >= options_.max_reservations;
}

uint64_t SocketPool::add_reservation(const ConnectionPtr& c, uint64_t remote) {
  std::lock_guard lock(mutex_);
  reservations_[++last_reservation_] = {c, remote, std::chrono::steady_clock::now()};
  return last_reservation_;
}

void SocketPool::end_reservation(uint64_t id) {
  std::lock_guard lock(mutex_);
  reservations_.erase(id);
}

Result<OpenReply> SocketPool::open_on(const Use& use, const OpenRequest& request,
                                      Deadline deadline) {
  uint64_t id = use->next_request();
  OutFrame out = request_frame(FrameType::open, id, timeout_ms(deadline), request);
  KV_ASSIGN_OR_RETURN(Frame frame, use->call(out, id, FrameType::open_ok, deadline));
  auto reply = decode_reply<OpenReply>(FrameType::open_ok, frame.body.span());
  if (!reply.ok()) return use->give_up(reply.status());
  return reply;
}

uint32_t SocketPool::remember(const Use& use, const OpenRequest& request, const OpenReply& reply) {
  OpenRequest again{request.model, reply.profile, false, request.prefill};
  std::lock_guard lock(mutex_);
  auto it = std::find_if(models_.begin(), models_.end(),
                         [&](const OpenedModel& m) { return m.realm == reply.realm; });
  if (it == models_.end()) it = models_.insert(it, {again, reply.realm});
  // The model's other handles are opened again under the profile in force now.
  for (OpenedModel& m : models_) {
    if (m.realm.fingerprint == reply.realm.fingerprint) m.again = again;
  }
  uint32_t model = static_cast<uint32_t>(it - models_.begin()) + 1;
  use->models[model] = reply.model;
  return model;
}

Result<uint32_t> SocketPool::remote_model(const Use& use, uint32_t model, Deadline deadline) {
  auto known = use->models.find(model);
  if (known != use->models.end()) return known->second;
  OpenRequest request;
  {
    std::lock_guard lock(mutex_);
    if (model == 0 || model > models_.size()) {
      return invalid_argument("model handle " + std::to_string(model) + " was not opened here");
    }
    request = models_[model - 1].again;
  }
  KV_ASSIGN_OR_RETURN(OpenReply reply, open_on(use, request, deadline));
  use->models[model] = reply.model;
  return reply.model;
}

Status SocketPool::to_remote(const Use& use, uint32_t& model, Id& profile, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(const uint32_t remote, remote_model(use, model, deadline));
  if (profile.is_zero()) {
    std::lock_guard lock(mutex_);
    profile = models_[model - 1].realm.profile;
  }
  model = remote;
  return {};
}

void SocketPool::release(const ConnectionPtr& c) {
  c->stop().end();
  std::lock_guard lock(mutex_);
  if (c->broken()) {
    forget(c);
  } else {
    idle_.push_back(c);
  }
  changed_.notify_all();
}

// Forgets a connection and its reservations. Precondition: mutex_ is held.
void SocketPool::forget(const ConnectionPtr& c) {
  --connections_;
  std::erase_if(reservations_, [&](const auto& r) { return r.second.connection == c; });
}

}  // namespace kv
