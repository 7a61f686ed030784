// ChildSet: the children of a node in the caller's order; a single child, as on a path without
// branches, takes no further memory. Iterators go both ways and end with the next change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>

namespace kv {

template <typename Order>
class ChildSet;

/// Iterator of a ChildSet.
template <typename Order>
class ChildIterator {
 public:
  using iterator_category = std::bidirectional_iterator_tag;
  using value_type = uint32_t;
  using difference_type = std::ptrdiff_t;
  using pointer = const uint32_t*;
  using reference = uint32_t;

  uint32_t operator*() const { return of_many_ ? *at_ : only_; }
  ChildIterator& operator++() {
    if (of_many_) ++at_;
    past_ = true;
    return *this;
  }
  ChildIterator& operator--() {
    if (of_many_) --at_;
    past_ = false;
    return *this;
  }
  ChildIterator operator++(int) {
    ChildIterator old = *this;
    ++*this;
    return old;
  }
  bool operator==(const ChildIterator& o) const {
    return of_many_ ? at_ == o.at_ : past_ == o.past_;
  }

 private:
  friend class ChildSet<Order>;
  typename std::set<uint32_t, Order>::const_iterator at_{};
  uint32_t only_ = UINT32_MAX;
  bool of_many_ = false;
  bool past_ = true;  // single child: behind it
};

/// `Order` compares ids and keys transparently and strictly; each call gets the same one.
template <typename Order>
class ChildSet {
  using Set = std::set<uint32_t, Order>;
  static constexpr uint32_t kNone = UINT32_MAX;

 public:
  using Iterator = ChildIterator<Order>;

  size_t size() const { return many_ ? many_->size() : only_ != kNone; }
  bool empty() const { return size() == 0; }
  /// The single one; kNone where there are none or several.
  uint32_t only() const { return only_; }
  Iterator begin() const { return many_ ? of(many_->begin()) : single(false); }
  Iterator end() const { return many_ ? of(many_->end()) : single(true); }

  template <typename Key>
  Iterator lower_bound(const Key& key, const Order& order) const {
    if (many_) return of(many_->lower_bound(key));
    return single(empty() || order(only_, key));
  }
  template <typename Key>
  Iterator upper_bound(const Key& key, const Order& order) const {
    if (many_) return of(many_->upper_bound(key));
    return single(empty() || !order(key, only_));
  }
  template <typename Key>
  Iterator find(const Key& key, const Order& order) const {
    if (many_) return of(many_->find(key));
    return single(empty() || order(only_, key) || order(key, only_));
  }

  /// Precondition: `id` is not there.
  void insert(uint32_t id, const Order& order) {
    if (many_) return void(many_->insert(id));
    if (empty()) return void(only_ = id);
    many_ = std::make_unique<Set>(order);
    many_->insert({only_, id});
    only_ = kNone;
  }
  /// Precondition: `id` is there.
  void erase(uint32_t id) {
    only_ = kNone;
    if (!many_) return;
    many_->erase(id);
    if (many_->size() > 1) return;
    only_ = *many_->begin();
    many_.reset();
  }

 private:
  static Iterator of(typename Set::const_iterator at) {
    Iterator out;
    out.of_many_ = true;
    out.at_ = at;
    return out;
  }
  Iterator single(bool past) const {
    Iterator out;
    out.only_ = only_;
    out.past_ = past || empty();
    return out;
  }

  std::unique_ptr<Set> many_;  // two or more
  uint32_t only_ = kNone;
};

}  // namespace kv
