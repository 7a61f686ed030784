// Which objects an erase removes: questions to the index. Loop thread only.
#pragma once

#include "cachesvc/core/model_state.h"

namespace kv {

/// Every object of the model, in any profile, whose entry begins with the query, or may do so.
/// Returns: what PrefixTree::match returns.
Result<std::vector<Record*>> objects_beginning_with(ObjectIndex& index, const ModelState& model,
                                                    const Query& query);

/// The entry that ends with the query's last token, with what no other entry has. Returns: as
/// above.
Result<std::vector<Record*>> objects_of_entry(ObjectIndex& index, const ModelState& model,
                                              const Query& query);

}  // namespace kv
