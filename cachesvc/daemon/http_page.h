// The status page: one HTML file without outside assets, whole without JavaScript, which only
// renews the numbers and tells rates. Pure, but for the nonce.
//
// A number that stands for a metric says so: data-metric has the series as /metrics names it,
// data-value the same digits.
#pragma once

#include <string>
#include <string_view>

#include "cachesvc/core/metrics.h"

namespace kv {

struct PageTerms {
  std::string model;       ///< the model that is shown; empty: all
  bool may_clear = false;  ///< the buttons to clear are there
  std::string nonce;       ///< of the script
};

std::string status_page(const Metrics& metrics, const PageTerms& terms);
/// The page that tells the outcome of a posted form, with a way back.
std::string result_page(std::string_view said);
/// A new one for each answer.
std::string page_nonce();
/// Content-Security-Policy: nothing from elsewhere, no script but that with the nonce, if
/// there is one.
std::string content_policy(const std::string& nonce);

}  // namespace kv
