# SPDX-License-Identifier: MIT
# shellcheck shell=sh
# To be sourced by tests that need node with the npm packages openai and undici, before lib.sh; TXDA_NODE_MODULES names
# where they are installed.
skip() {
	echo "$*"
	exit 77
}
command -v node >/dev/null 2>&1 || skip "node is not installed"
for package in openai undici; do
	[ -e "${TXDA_NODE_MODULES:-}/$package/package.json" ] ||
		skip "the npm package $package is not in TXDA_NODE_MODULES (${TXDA_NODE_MODULES:-not set})"
done
