#!/bin/sh
# The tests of chance at KV_SOAK times their size in CI (10), one after another: kills of the
# daemon, power cuts, random damage, random sequences against an oracle. What CI tries exhaustively
# (kill points, injected errors, flipped bits) runs once, kills and errors on sealed directories
# too. The build's target `soak` runs it; by hand: soak.sh BIN [FILTER].
set -u
bin=$1 filter=${2:-.}
export KV_SOAK="${KV_SOAK:-10}" failed=0
export KV_SEEDS="1-$((26 * KV_SOAK))"
echo "soak: KV_SOAK=$KV_SOAK"
for test in storage_power_test storage_damage_test storage_kill_test storage_fault_test \
    cachesvc_property_test cachesvc_kill_test; do
  echo "$test" | grep -q "$filter" || continue
  echo "== $test"
  "$bin/$test" --gtest_brief=1 || failed=1
done
[ $failed = 0 ] && echo "soak: all passed" || echo "soak: FAILED"
exit $failed
