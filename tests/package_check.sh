#!/usr/bin/env bash
# The Debian package: lintian finds nothing; in a clean Debian it installs, its programs run as
# their user, it is upgraded, removed and purged, and leaves nothing but the store.
#   tests/package_check.sh BUILD    BUILD: a release build
# Exits with 77 (skipped), saying why, without root or the tools.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "a clean system is made by root only"
for tool in lintian debootstrap dpkg-deb cpack; do
  command -v "$tool" >/dev/null || skip "$tool is not installed"
done

made=$(mktemp -d)
root=$made/root
clean_up() {
  umount "$root/proc" 2>/dev/null || true
  rm -rf --one-file-system "$made"
}
trap clean_up EXIT
fail() { echo "failed: $1" >&2; exit 1; }
inside() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}
# Files and folders, less what every change of packages writes.
listed() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/log -o \
    -path ./var/lib/dpkg -o -path ./var/cache/apt -o -path ./var/lib/apt \) -prune -o -print) | sort
}

echo "packages of two versions"
pack() {
  cpack --config "$build/CPackConfig.cmake" -B "$made/$1" -R "$1" >"$made/log" 2>&1 ||
    { cat "$made/log"; fail "cpack"; }
  ls "$made/$1"/*.deb
}
first=$(pack 0.1.0) second=$(pack 0.1.0+1)
said=$(lintian --allow-root --fail-on none --tag-display-limit 0 "$first" 2>&1)
[ -z "$said" ] || fail "lintian: $said"

echo "a clean Debian"
. /etc/os-release
mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $VERSION_CODENAME" | head -n 1)
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$mirror" >"$made/log" 2>&1 ||
  { tail "$made/log"; fail "debootstrap"; }
rm -f "$root/etc/apt/sources.list"
cp /etc/apt/sources.list "$root/etc/apt/" 2>/dev/null || true
cp -r /etc/apt/sources.list.d /etc/apt/apt.conf.d /etc/apt/trusted.gpg.d "$root/etc/apt/"
cp /etc/resolv.conf "$root/etc/"
mount -t proc proc "$root/proc" || skip "nothing may be mounted here"
depends=$(dpkg-deb -f "$first" Depends)
inside apt-get update -qq
inside apt-get satisfy -qq -y --no-install-recommends "$depends" >"$made/log" 2>&1 ||
  { tail "$made/log"; fail "what it depends on can't be installed"; }
listed >"$made/before"

echo "installed"
cp "$first" "$root/tmp/first.deb"
cp "$second" "$root/tmp/second.deb"
inside dpkg -i /tmp/first.deb
owner=$(inside stat -c '%U %a' /var/cache/cachesvc)
[ "$owner" = "cachesvc 700" ] || fail "/var/cache/cachesvc: $owner, expected cachesvc 700"
inside cachectl --help >/dev/null
for file in man/man8/cachesvc.8.gz man/man1/cachectl.1.gz man/man5/cachesvc.toml.5.gz \
    bash-completion/completions/cachesvc bash-completion/completions/cachectl \
    doc/cachesvc/monitoring/grafana.json doc/cachesvc/monitoring/alerts.yml; do
  [ -s "$root/usr/share/$file" ] || fail "/usr/share/$file is not there"
done
mkdir "$root/etc/cachesvc"
printf '[log]\nlevel = "debug"\n' >"$root/etc/cachesvc/cachesvc.toml"
environment=$(sed -n 's/^Environment=//p' "$root/usr/lib/systemd/system/cachesvc.service")
said=$(inside "$environment" cachesvc check-config)
[ "$said" = "ok: /etc/cachesvc/cachesvc.toml" ] || fail "the unit's settings: $said"
rm -r "$root/etc/cachesvc"
[ -L "$root/etc/systemd/system/multi-user.target.wants/cachesvc.service" ] || fail "not enabled"

# Serves as its user with the unit's command line until it is told to end.
serve() {
  command=$(sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/cachesvc.service")
  rm -f "$made/ready" && mkfifo "$made/ready"
  # shellcheck disable=SC2086  # a command line in one word
  inside setpriv --reuid cachesvc --regid cachesvc --clear-groups $command \
    --ram 64MiB --ssd 64MiB --set tier.ssd.min_free=0 --ready-fd 9 \
    9>"$made/ready" 2>"$made/serving" &
  daemon=$!
  read -r -t 60 word <"$made/ready" || { cat "$made/serving"; fail "it does not serve"; }
  [ "$word" = ready ] || fail "it said $word"
}
stop() {
  pkill -TERM -P "$daemon" -x cachesvc 2>/dev/null || kill -TERM "$daemon"
  wait "$daemon" || { cat "$made/serving"; fail "SIGTERM: exit code $?"; }
}
serve
[ -S "$root/run/cachesvc/cachesvc.sock" ] || fail "no socket"
stop
[ -d "$root/var/cache/cachesvc/store" ] || fail "no store"

echo "upgraded"
inside dpkg -i /tmp/second.deb
serve
stop
[ "$(inside dpkg-query -W -f '${Version}' cachesvc)" = 0.1.0+1 ] || fail "not the second version"

echo "removed"
inside dpkg -r cachesvc
[ ! -e "$root/usr/bin/cachesvc" ] || fail "the program is still there"
inside dpkg -P cachesvc
listed >"$made/after"
left=$(diff "$made/before" "$made/after" | grep '^[<>]' |
  grep -vE '^> \./var/cache/cachesvc(/|$)|^> \./etc/(passwd|group|shadow|gshadow)-$' || true)
[ -z "$left" ] || fail "a purge left or took: $left"
[ -d "$root/var/cache/cachesvc/store" ] || fail "a purge took the store"
echo "lintian finds nothing; installed, served, upgraded, removed; the store is left"
