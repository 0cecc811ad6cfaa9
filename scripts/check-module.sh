#!/bin/sh
# SPDX-License-Identifier: MIT
#
# check-module.sh -r FILE [KERNEL...] - txda.ko with W=1 for each kernel of scripts/kernel-headers.sh, or only those that
# are named there so, and what dkms.conf says of them. Without names through sparse, too. FILE gets a line a test: OK, FAIL
# or SKIP, name, reason, seconds, separated by tabs.
set -eu
cd "$(dirname "$0")/.."
results=$2
shift 2
B=${B:-build}

# record RESULT NAME [REASON]
record() {
	printf '%s\tmodule: %s\t%s\t%s\n' "$1" "$2" "${3:-}" $(($(date +%s) - begun)) >>"$results"
	begun=$(date +%s)
}

# dkms_takes RELEASE - whether DKMS builds the module for that kernel.
dkms_takes() {
	printf '%s\n' "$1" | grep -Eq "$(sed -n 's/^BUILD_EXCLUSIVE_KERNEL="\(.*\)"$/\1/p' dkms.conf)"
}

begun=$(date +%s)
dirs=$(sh scripts/kernel-headers.sh "$B/kernel-headers" "$@")
if [ -z "$dirs" ]; then
	record SKIP all "no kernel headers here, and none could be fetched"
	exit 0
fi
# Header packages of one kernel have all that sparse's part of kbuild asks for.
sparse=
[ $# -gt 0 ] || sparse=$(printf '%s\n' "$dirs" | grep '/linux-headers-6\.12\.' || true)
for dir in $dirs; do
	release=$(cat "$dir/include/config/kernel.release")
	flags=W=1 what=$release
	[ "$dir" != "$sparse" ] || flags="W=1 C=2" what="$release, and through sparse"
	if KFLAGS=$flags sh scripts/module.sh "$dir" >/dev/null; then
		record OK "$what"
		# Debian's newest may be newer than this tree.
		dkms_takes "$release" || record SKIP "$release by DKMS" "it builds, and dkms.conf leaves it out"
	else
		record FAIL "$what" "see above"
	fi
done
for release in 6.11.9 6.13.1 7.1.4 8.0.1; do
	! dkms_takes "$release" || record FAIL "$release by DKMS" "dkms.conf accepts it, and nobody has built it"
done
[ -n "$sparse$*" ] || record SKIP sparse "no headers of 6.12 here"
