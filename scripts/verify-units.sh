#!/bin/sh
# SPDX-License-Identifier: MIT
#
# verify-units.sh - systemd's own opinion of the units, without installing them.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The units name the installed daemon; here any program in its place will do.
for unit in packaging/systemd/*; do
	sed "s,^\(ExecStart=\)[^ ]*,\1/bin/true," "$unit" >"$tmp/$(basename "$unit")"
done
out=$(SYSTEMD_UNIT_PATH="$tmp:" systemd-analyze --man=no verify "$tmp"/* 2>&1 |
	grep -E 'txdad' || true)
[ -z "$out" ] || { printf '%s\n' "$out"; exit 1; }

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
