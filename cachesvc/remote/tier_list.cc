// Lists of what lies behind a block. REMOTE.md, "Lists".
#include <utility>

#include "cachesvc/remote/tier.h"

namespace kv {

void RemoteTier::list(std::vector<RemoteList> lists, Clock::time_point deadline,
                      std::function<void(std::vector<RemoteListed>)> done) {
  KV_CHECK(lists.size() <= kMaxRemoteNames);
  struct Listing {
    std::vector<RemoteListed> listed;
    size_t missing = 0;
    std::function<void(std::vector<RemoteListed>)> done;
  };
  if (lists.empty()) return done({});
  auto listing = std::make_shared<Listing>();
  listing->listed.resize(lists.size());
  listing->missing = lists.size();
  listing->done = std::move(done);
  for (size_t i = 0; i < lists.size(); ++i) {
    const std::string key = remote_list_key(lists[i]);
    auto answer = [listing, i](const Reply& reply) {
      for (size_t m = 0; reply.ok() && m < reply->items.size(); ++m) {
        if (auto entry = parse_remote_entry(reply->items[m].text)) {
          listing->listed[i].push_back(*entry);
        }
      }
      if (--listing->missing == 0) listing->done(std::move(listing->listed));
    };
    commands_.ask(key, false, deadline, remote_words({"SMEMBERS", key}), std::move(answer));
  }
}

// Nobody waits for it: what does not stand there is a shorter hit.
void RemoteTier::enlist(const RemoteName& name, Clock::time_point deadline) {
  if (name.block.is_zero()) return;
  const std::string key = remote_list_key({name.space, name.block, name.tag});
  commands_.ask(key, true, deadline, remote_words({"SADD", key, to_text(name.entry)}),
                [](const Reply&) {});
  commands_.renew(key, deadline);
}

}  // namespace kv
