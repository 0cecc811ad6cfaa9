#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The npm client `openai` with undici over the Unix socket; TXDA_NODE_MODULES names where they are installed.
set -eu

skip() {
	echo "$*"
	exit 77
}
command -v node >/dev/null 2>&1 || skip "node is not installed"
for package in openai undici; do
	[ -e "${TXDA_NODE_MODULES:-}/$package/package.json" ] ||
		skip "the npm package $package is not in TXDA_NODE_MODULES (${TXDA_NODE_MODULES:-not set})"
done

. "$(dirname "$0")/lib.sh"
start_daemon
node "$(dirname "$0")/openai.mjs" "$socket" || fail "openai.mjs: exit status $?"
conclude
