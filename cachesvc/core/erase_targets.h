// EraseTargets: the objects that an erase removes, found a few at a time, so that no step of the
// loop looks at all of them. The caller removes each result from the index before it asks for the
// next, which is what is there then. Between two calls objects may be evicted and orphans may find
// their parents, but nothing new of the namespace becomes visible (core/eraser.h). Loop thread
// only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/core/model_state.h"

namespace kv {

class EraseTargets {
 public:
  /// Every object of the namespace, of any model.
  static std::unique_ptr<EraseTargets> of_namespace(ObjectIndex& index, std::string ns);
  /// Every object of the model, in any profile, whose entry begins with the query, or may do so.
  /// Returns: what PrefixTree::match returns.
  static Result<std::unique_ptr<EraseTargets>> beginning_with(ObjectIndex& index,
                                                              const ModelState& model, Query query);
  /// The entry that ends with the query's last token, with what no other entry has. Returns: as
  /// above.
  static Result<std::unique_ptr<EraseTargets>> of_entry(ObjectIndex& index, const ModelState& model,
                                                        const Query& query);

  /// These objects, those of them that are there.
  static std::unique_ptr<EraseTargets> of_names(ObjectIndex& index, std::vector<PinnedName> names);
  /// The objects that beginning_with() (`whole`) or of_entry() would find now; they stay in the
  /// index. The search ends soon after `most`. Returns: as above.
  static Result<std::vector<Record*>> found_now(ObjectIndex& index, const ModelState& model,
                                                const Query& query, bool whole, size_t most);

  virtual ~EraseTargets() = default;
  EraseTargets(const EraseTargets&) = delete;  // a position in the index
  EraseTargets& operator=(const EraseTargets&) = delete;

  /// Returns at most `most` (> 0) objects, children before parents; perhaps none, though some are
  /// left.
  virtual std::vector<Record*> next(size_t most) = 0;
  /// True if none is left.
  bool done() const { return done_; }

 protected:
  EraseTargets() = default;
  bool done_ = false;
};

}  // namespace kv
