// Namespaces: the namespaces with a quota, by name and by number. Immutable.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cachesvc/core/shares.h"
#include "cachesvc/namespace_options.h"
#include "proto/status.h"

namespace kv {

class Namespaces {
 public:
  Namespaces() = default;
  /// `guest`: counts that a namespace `uid-N` without a quota may have, as no other user can tell
  /// how many of these come. Its bytes are not read.
  explicit Namespaces(const std::map<std::string, NamespaceQuota>& quotas,
                      const NamespaceQuota& guest = {});

  /// The namespace's share; kCommonShare: it has no quota.
  ShareId share(const std::string& ns) const;
  const NamespaceQuota& quota(ShareId share) const { return quotas_[share]; }
  const NamespaceQuota& quota(const std::string& ns) const {
    const ShareId its = share(ns);
    return its == kCommonShare && ns.starts_with(kGuestPrefix) ? guest_ : quotas_[its];
  }
  size_t count() const { return names_.size(); }  ///< the common one included
  const std::string& name(ShareId share) const { return names_[share]; }
  uint64_t ram_quotas() const { return ram_quotas_; }  ///< of all together

  /// Shares of the two tiers.
  Shares ram_shares(uint64_t tier_bytes) const;
  Shares ssd_shares(uint64_t tier_bytes) const;

 private:
  std::vector<std::string> names_{""};
  std::vector<NamespaceQuota> quotas_{{}};  // by number, the common one first: no limits
  NamespaceQuota guest_;
  uint64_t ram_quotas_ = 0;
};

/// resource_exhausted naming namespace, quota, used and asked.
Status over_quota(const std::string& ns, const char* what, uint64_t quota, uint64_t used,
                  uint64_t asked);
/// ok if `asked` more fit a quota (0: there is none), else over_quota().
Status within_quota(const std::string& ns, const char* what, uint64_t quota, uint64_t used,
                    uint64_t asked);

}  // namespace kv
