// ReplyObject: an object as a fetch asked for it: its layers, parts and heads, decoded or as it
// lies.
//
// Pure; on workers. Planes that are decoded or cut to some heads lie in one pool buffer of the
// reply's own; others share the bytes of the stored object.
#pragma once

#include "cachesvc/ram_pool.h"
#include "codec/codec.h"
#include "proto/client.h"

namespace kv {

DType dtype_of(FetchForm form);  ///< not for FetchForm::stored
/// FetchForm::stored where every row of the model is stored exactly as `form` has it: such rows are
/// leased, not copied. Otherwise `form`.
FetchForm form_to_make(const Codec& codec, FetchForm form);

/// Bytes of the pool that one reply object takes.
struct ReplyBytes {
  uint64_t result = 0;   ///< planes that are made anew, states beside them
  uint64_t scratch = 0;  ///< one plane decoded whole, where only some of its heads are wanted
  uint64_t slabs() const {
    return (result > 0 ? RamPool::slab_bytes(result) : 0) +
           (scratch > 0 ? RamPool::slab_bytes(scratch) : 0);
  }
};
ReplyBytes reply_bytes(const Object& object, FetchForm form, const Selection& selection);

/// `charge`: reply_bytes().slabs(). Null: nothing of the object is selected. Returns: corruption (a
/// scale that is not finite, a stream that can't be decoded).
Result<ObjectPtr> make_reply_object(const ObjectPtr& object, const Codec& codec, FetchForm form,
                                    const Selection& selection, RamPool& pool, Charge charge);

}  // namespace kv
