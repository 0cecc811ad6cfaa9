#!/bin/sh
# SPDX-License-Identifier: MIT
#
# checkpatch.sh CACHE - what a kernel gets of this tree, through its checkpatch.pl --strict. Exit status 77: it cannot
# be had.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/kernel-scripts.sh
. scripts/kernel-scripts.sh
cache=$(mkdir -p "$1" && cd "$1" && pwd)
kernel_scripts "$cache"

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
