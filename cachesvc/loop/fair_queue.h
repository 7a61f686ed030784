// FairQueue: items of several parties, and the choice of the next.
//
// Next is an item of the party that has spent least; a party's own items keep their order. A party
// that comes, or comes back, begins with what the last one served had spent, unless it has spent
// more: no party saves up turns by not asking, nor gains any by leaving in between. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>

namespace kv {

template <typename Party, typename Item>
class FairQueue {
 public:
  bool empty() const { return waiting_.empty(); }
  void push(const Party& party, Item item) {
    auto [at, is_new] = accounts_.try_emplace(party);
    Account& account = at->second;
    if (account.items.empty()) {
      account.spent = std::max(account.spent, floor_);
      waiting_.insert({account.spent, party});
    }
    account.items.push_back(std::move(item));
  }
  /// Takes the next item out. The queue is not empty.
  std::pair<Party, Item> pop() {
    const auto [spent, party] = *waiting_.begin();
    Account& account = accounts_.at(party);
    floor_ = spent;
    std::pair<Party, Item> out{party, std::move(account.items.front())};
    account.items.pop_front();
    if (account.items.empty()) waiting_.erase(waiting_.begin());
    forget_some();
    return out;
  }
  /// Counts what an item of the party cost; at least 1.
  void spend(const Party& party, uint64_t cost) {
    Account& account = accounts_.try_emplace(party, Account{{}, floor_}).first->second;
    auto listed = waiting_.extract({account.spent, party});
    account.spent += std::max<uint64_t>(1, cost);
    if (listed.empty()) return;
    listed.value().first = account.spent;
    waiting_.insert(std::move(listed));
  }

 private:
  static constexpr size_t kKept = 64;
  struct Account {
    std::deque<Item> items;
    uint64_t spent = 0;
  };
  // Accounts that wait for nothing and would begin at the floor anyway.
  void forget_some() {
    if (accounts_.size() <= 2 * waiting_.size() + kKept) return;
    std::erase_if(accounts_, [this](const auto& entry) {
      return entry.second.items.empty() && entry.second.spent <= floor_;
    });
  }

  std::map<Party, Account> accounts_;
  std::set<std::pair<uint64_t, Party>> waiting_;  // parties with items, by what they have spent
  uint64_t floor_ = 0;                            // spent by the party served last
};

}  // namespace kv
