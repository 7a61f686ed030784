// Numbers and limits.
#include "cachesvc/core/namespaces.h"

#include <algorithm>

namespace kv {

Namespaces::Namespaces(const std::map<std::string, NamespaceQuota>& quotas,
                       const NamespaceQuota& guest)
    : guest_(guest) {
  for (const auto& [name, quota] : quotas) {  // sorted, as the map is
    names_.push_back(name);
    quotas_.push_back(quota);
    ram_quotas_ += quota.ram_bytes;
  }
}

ShareId Namespaces::share(const std::string& ns) const {
  auto at = std::lower_bound(names_.begin() + 1, names_.end(), ns);
  return at != names_.end() && *at == ns ? static_cast<ShareId>(at - names_.begin()) : kCommonShare;
}

Shares Namespaces::ram_shares(uint64_t tier_bytes) const {
  std::vector<uint64_t> limits;
  for (const NamespaceQuota& quota : quotas_) limits.push_back(quota.ram_bytes);
  return Shares(limits, tier_bytes);
}

Shares Namespaces::ssd_shares(uint64_t tier_bytes) const {
  std::vector<uint64_t> limits;
  for (const NamespaceQuota& quota : quotas_) limits.push_back(quota.ssd_bytes);
  return Shares(limits, tier_bytes);
}

Status over_quota(const std::string& ns, const char* what, uint64_t quota, uint64_t used,
                  uint64_t asked) {
  return {StatusCode::resource_exhausted,
          "namespace \"" + ns + "\": quota of " + what + " " + std::to_string(quota) + ", used " +
              std::to_string(used) + ", asked " + std::to_string(asked)};
}

Status within_quota(const std::string& ns, const char* what, uint64_t quota, uint64_t used,
                    uint64_t asked) {
  if (quota == 0 || used + asked <= quota) return {};
  return over_quota(ns, what, quota, used, asked);
}

}  // namespace kv
