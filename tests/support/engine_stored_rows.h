// What a store holds of a sequence, byte by byte: for tests that compare two stores.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "proto/demand.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {

inline constexpr uint32_t kStateBytes = 9;  ///< in place of a side

/// Everything that a fetch brought, cut to single rows.
struct StoredRows {
  uint32_t tokens = 0;  ///< what was served
  /// By (layer, part, side, row), states by (layer, part, kStateBytes, position).
  std::map<std::array<uint32_t, 4>, std::vector<uint8_t>> bytes;
};

/// Of the longest stored prefix of `tokens` that ends a block.
inline StoredRows stored_rows(Client& client, const OpenReply& opened, std::vector<Token> tokens) {
  StoredRows out;
  FetchRequest request;
  request.model = opened.model;
  tokens.push_back(0);
  request.query.tokens = std::move(tokens);
  request.round_to_block = true;
  auto reply = client.fetch(request, soon());
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  if (!reply.ok()) return out;
  EXPECT_GT(reply->tokens, 0u);
  out.tokens = reply->tokens;
  for (const FetchedObject& f : reply->lease.prefix().objects) {
    for (const Plane& p : f.object->planes) {
      for (uint32_t row = p.first_row; row < p.end_row(); ++row) {
        auto slice = slice_rows(p, row, row + 1);
        EXPECT_TRUE(slice.ok());
        auto bytes = slice->bytes.span();
        out.bytes[{p.layer, p.part, static_cast<uint32_t>(p.side), row}].assign(bytes.begin(),
                                                                                bytes.end());
      }
    }
    for (const StateBlob& s : f.object->states) {
      auto bytes = s.bytes.span();
      out.bytes[{s.layer, s.part, kStateBytes, reply->tokens}].assign(bytes.begin(), bytes.end());
    }
  }
  return out;
}

/// Both have all that a cache of their length holds, and the bytes of what both have are equal: one
/// may keep older rows of a window beside them.
inline void expect_equal_bytes(const ModelSpec& model, const StoredRows& a, const StoredRows& b) {
  ASSERT_EQ(a.tokens, b.tokens);
  std::map<std::array<uint32_t, 2>, size_t> shared;  // rows and states, by (layer, part)
  for (const auto& [key, bytes] : a.bytes) {
    auto it = b.bytes.find(key);
    if (it == b.bytes.end()) continue;
    EXPECT_EQ(bytes, it->second) << "layer " << key[0] << " part " << key[1] << " row " << key[3];
    const PartSpec& part = model.layers[key[0]].parts[key[1]];
    bool demanded = key[2] == kStateBytes;
    if (!demanded) {
      for (RowRange r : demanded_rows(part, a.tokens)) {
        demanded |= r.first <= key[3] && key[3] < r.end;
      }
    }
    shared[{key[0], key[1]}] += demanded;
  }
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    for (uint32_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      size_t demanded = demands_carry(part, a.tokens) + demands_snapshot(part, a.tokens);
      for (RowRange r : demanded_rows(part, a.tokens)) {
        demanded += (r.end - r.first) * sides_of(part).size();
      }
      size_t both = shared[{l, p}];
      EXPECT_GE(both, demanded) << "layer " << l << " part " << p;
    }
  }
}

}  // namespace kv
