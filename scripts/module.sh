#!/bin/sh
# SPDX-License-Identifier: MIT
#
# module.sh [-m DIR] [KDIR] - build txda.ko against the kernel build directory KDIR. Without a usable KDIR
# it builds against Debian's headers of each supported kernel instead, which proves the source
# but gives no module for the running kernel. The objects land in build/module/RELEASE, the
# source tree stays clean. With -m the module of DIR, into a directory of that name there.
set -eu
sources="Kbuild dkms.conf driver uapi" name=''
of=$(dirname "$0")/..
if [ "${1:-}" = -m ]; then
	of=$2 sources=. name=${2##*/}
	shift 2
fi
of=$(cd "$of" && pwd)
cd "$(dirname "$0")/.."
mkdir -p "${B:=build}"
B=$(cd "$B" && pwd)
flags=${KFLAGS:-W=1}

build_one() {
	kdir=$1
	release=$(cat "$kdir/include/config/kernel.release")
	out=$B/module/$release${name:+/$name}
	mkdir -p "$out"
	exec 8>"$B/module/$release.lock"
	flock 8
	# shellcheck disable=SC2086 # names are words
	(cd "$of" && cp -a -u $sources "$out/")

	# The kernel was configured for the compiler that built it. Where that one is missing, the
	# machine's gcc serves, without the one option that gcc 12 does not know.
	set --
	wanted=$(sed -n 's/^CC = .*)\(gcc-[0-9]*\)$/\1/p' "$kdir/.kernelvariables" 2>/dev/null || true)
	if [ -n "$wanted" ] && ! command -v "$wanted" >/dev/null; then
		set -- CC=gcc HOSTCC=gcc
		if ! gcc -fmin-function-alignment=16 -E -x c /dev/null >/dev/null 2>&1; then
			set -- "$@" CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=
		fi
	fi
	# Type information for tracers (BTF) is made by pahole, which few have.
	command -v pahole >/dev/null || set -- "$@" CONFIG_DEBUG_INFO_BTF_MODULES=
	log=$out/build.log
	# shellcheck disable=SC2086 # flags are words
	if ! make -C "$kdir" M="$out" $flags "$@" modules >"$log" 2>&1; then
		cat "$log" >&2
		echo "${name:-txda.ko} does not build for $release" >&2
		return 1
	fi
	# Only what speaks of these sources: kbuild itself also remarks on tools that it misses.
	if grep -E '(driver|uapi|txda)[^ ]*: (warning|error):|^(WARNING|ERROR): modpost' "$log" >&2; then
		echo "${name:-txda.ko} builds with warnings for $release" >&2
		return 1
	fi
	ls "$out"/*.ko
}

usable() {
	[ -e "$1/include/config/kernel.release" ] && grep -q '^CONFIG_DRM_ACCEL=y' "$1/.config" 2>/dev/null
}

if [ -n "${1:-}" ] && usable "$1"; then
	build_one "$1"
	exit
fi
if [ -n "${1:-}" ]; then
	echo "No kernel with CONFIG_DRM_ACCEL in $1: building against Debian's headers instead." >&2
fi
sh scripts/deps.sh module >&2
dirs=$(sh scripts/kernel-headers.sh "$B/kernel-headers")
if [ -z "$dirs" ]; then
	echo "No kernel headers to build against." >&2
	exit 77
fi
for dir in $dirs; do
	build_one "$dir"
done
