// Strips: the rows of weight matrices as tasks for the threads.
//
// All strips of one call have about the same number of bytes: few enough that each is a long
// stretch of memory (a strip's first tile comes unannounced, prefetch_weights() in panel_tiles.h;
// strips of 28 KB made a step's layers take 1.25 times as long), and enough that no thread waits
// long for another. Pure; which rows share a strip changes no result (kernels.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "engine/threads.h"
#include "engine/weights.h"

namespace kv {

/// True: a product of one of these wants its input rounded (rounded.h).
template <typename Product>
bool wants_rounding(std::initializer_list<Product> products) {
  return std::any_of(products.begin(), products.end(),
                     [](const Product& p) { return panel_integers(p.weights->type); });
}

/// Calls body(product, first, end, worker) for every strip, rows first … end - 1 of
/// product.weights, over the threads (Threads::run); returns when all are done.
template <typename Product, typename Body>
void each_strip(Threads& threads, std::initializer_list<Product> products, const Body& body) {
  constexpr uint64_t kPerThread = 2, kLeastBytes = 8192, kMostBytes = 1 << 20;
  constexpr uint32_t kRows = 2 * kPanelRows;  // a multiple of the kernels' tiles
  uint64_t bytes = 0;
  auto row_of = [](const Product& p) { return row_bytes(p.weights->type, p.weights->columns); };
  for (const Product& p : products) bytes += p.weights->rows * row_of(p);
  bytes = std::clamp(bytes / (threads.count() * kPerThread), kLeastBytes, kMostBytes);
  auto rows_of = [&](const Product& p) {
    return static_cast<uint32_t>(bytes / row_of(p) / kRows + 1) * kRows;
  };
  auto count_of = [&](const Product& p) { return (p.weights->rows - 1) / rows_of(p) + 1; };
  uint32_t tasks = 0;
  for (const Product& p : products) tasks += count_of(p);
  threads.run(tasks, [&](uint32_t task, uint32_t worker) {
    for (const Product& p : products) {
      const uint32_t count = count_of(p), rows = rows_of(p), first = task * rows;
      if (task < count) return body(p, first, std::min(first + rows, p.weights->rows), worker);
      task -= count;
    }
  });
}

}  // namespace kv
