#!/bin/sh
# SPDX-License-Identifier: MIT
#
# checkpatch.sh CACHE - what a kernel gets of this tree, through its checkpatch.pl --strict. Exit status 77: it cannot
# be had.
#
# Headers come without the script, so it is taken into CACHE out of the package of Debian's newest kernel sources,
# which is not kept (165 MB).
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/debian.sh
. scripts/debian.sh
cache=$(mkdir -p "$1" && cd "$1" && pwd)

fetch() {
	debian_apt_setup "$cache/apt" trixie-backports || return 1
	source=$(debian_apt "$cache/apt" apt-cache search --names-only '^linux-source-[0-9.]*$' |
		cut -d ' ' -f 1 | sort -V | tail -n 1 | grep .) || return 1
	rm -rf "$cache/new"
	mkdir "$cache/new"
	(cd "$cache/new" && debian_apt "$cache/apt" apt-get download "$source" >/dev/null 2>&1) || return 1
	dpkg --fsys-tarfile "$cache/new/$source"_*.deb | tar -xO "./usr/src/$source.tar.xz" |
		tar -C "$cache/new" --strip-components=1 -xJf - "$source/scripts/checkpatch.pl" \
			"$source/scripts/spelling.txt" "$source/scripts/const_structs.checkpatch" || return 1
	mv "$cache/new/scripts" "$cache/scripts"
	rm -rf "$cache/new" "$cache/apt"
}

if [ ! -e "$cache/scripts" ] && ! fetch; then
	echo "Debian's kernel sources, which have checkpatch.pl, cannot be fetched"
	exit 77
fi

status=0
# check IGNORED-TYPES FILE...
check() {
	types=$1
	shift
	perl "$cache/scripts/checkpatch.pl" --no-tree --strict --quiet --terse --no-summary --show-types --ignore "$types" -f "$@" ||
		status=1
}

check NONE driver/*.[ch] driver/tests/*.c
# Where else would a version be asked for.
check LINUX_VERSION_CODE,CONSTANT_COMPARISON driver/compat/*.[ch] driver/compat/probe/*.c
# User space has no BIT(). txda_isa.h is not among them: what programs are is the chip's and user space's business.
check BIT_MACRO uapi/drm/txda_drm.h uapi/txda_firmware.h uapi/txda_netlink.h uapi/txda_regs.h
exit $status
