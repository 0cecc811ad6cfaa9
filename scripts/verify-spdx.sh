#!/bin/sh
# SPDX-License-Identifier: MIT
#
# verify-spdx.sh - every source file says its licence in its first lines, the one of its room.
set -eu
cd "$(dirname "$0")/.."
# Outside of git (a release archive) there is no list of files to hold against the rule.
git rev-parse --git-dir >/dev/null 2>&1 || exit 0

git ls-files '*.c' '*.h' '*.sh' '*.build' '*.py' '*.mjs' '*.yaml' Makefile Kbuild '*.rules' dkms.conf |
	while read -r file; do
		[ -e "$file" ] || continue
		case $file in
		driver/* | Kbuild | dkms.conf) licence='GPL-2.0' ;;
		uapi/meson.build) licence='MIT' ;;
		uapi/*) licence='(GPL-2.0 WITH Linux-syscall-note OR MIT)' ;;
		*) licence='MIT' ;;
		esac
		head -n 3 "$file" | tr -d '()' |
			grep -qF "SPDX-License-Identifier: $(printf '%s' "$licence" | tr -d '()')" ||
			echo "$file: wants SPDX-License-Identifier: $licence in its first three lines"
	done | {
	wrong=$(cat)
	[ -z "$wrong" ] || { printf '%s\n' "$wrong"; exit 1; }
}
