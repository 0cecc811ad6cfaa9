#!/bin/sh
# SPDX-License-Identifier: MIT
#
# verify-units.sh - systemd's own opinion of the units, without installing them.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The units name the installed daemon; here any program in its place will do. The prefix may have a space.
mkdir "$tmp/my prefix"
ln -s /bin/true "$tmp/my prefix/txdad"
for unit in packaging/systemd/*; do
	sed "s,@bindir@,$tmp/my prefix,; s,@sysconfdir@,$tmp/my prefix," "$unit" >"$tmp/$(basename "$unit")"
done
out=$(SYSTEMD_UNIT_PATH="$tmp:" systemd-analyze --man=no verify "$tmp"/txdad* 2>&1 |
	grep -E 'txdad|my prefix' || true)
[ -z "$out" ] || { printf '%s\n' "$out"; exit 1; }

# udev splits the command at spaces, too.
grep -q "^RUN+=\"'@bindir@/[a-z-]*' " udev-rules/60-txda.rules || {
	echo "the path in RUN+= of 60-txda.rules is not quoted"
	exit 1
}

# Who may use the socket does not thereby have the chips' nodes.
socket=$(sed -n 's/^SocketGroup=//p' packaging/systemd/txdad.socket)
nodes=$(sed -n 's/^GROUP="\([^"]*\)".*/\1/p' udev-rules/60-txda.rules)
if [ -z "$socket" ] || [ -z "$nodes" ] || [ "$socket" = "$nodes" ]; then
	echo "the socket is for group '$socket', the nodes are for group '$nodes'"
	exit 1
fi

# How much of the system the daemon could reach if somebody took it over, on systemd's scale from 0 to 10; at most 1.0.
SYSTEMD_UNIT_PATH="$tmp:" systemd-analyze --no-pager security --offline=yes --threshold=10 "$tmp/txdad.service" >"$tmp/exposure" 2>&1 || {
	grep -vE '^✓' "$tmp/exposure"
	exit 1
}
grep '^→' "$tmp/exposure"
