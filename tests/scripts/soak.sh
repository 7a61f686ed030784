#!/bin/sh
# The tests of chance at KV_SOAK times their size in CI (10), one after another: kills of the
# daemon, power cuts, random damage, random sequences against an oracle. What CI tries exhaustively
# (kill points, injected errors, flipped bits) runs once, kills and errors on sealed directories
# too. The build's target `soak` runs it; by hand: soak.sh BIN [FILTER].
set -u
bin=$1 filter=${2:-.}
export KV_SOAK="${KV_SOAK:-10}" failed=0 chosen_any=0
export KV_SEEDS="1-$((26 * KV_SOAK))"
echo "soak: KV_SOAK=$KV_SOAK"
for chosen in 'storage_test *PowerCut.*' 'storage_test Damage.*:RandomDamage.*' \
    'storage_test *Kills.*' 'storage_test *Faults.*:RealDisk.*' \
    'cachesvc_test Property.*' 'cachesvc_test AckProperty.*' 'cachesvc_test Resident.*' \
    'cachesvc_test KillTest.*'; do
  echo "$chosen" | grep -qe "$filter" || continue
  echo "== $chosen" && chosen_any=1
  "$bin/${chosen% *}" --gtest_brief=1 --gtest_filter="${chosen#* }" || failed=1
done
[ $chosen_any = 1 ] || { echo "soak: nothing is called $filter"; exit 2; }
[ $failed = 0 ] && echo "soak: all passed" || echo "soak: FAILED"
exit $failed
