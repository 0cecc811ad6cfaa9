#!/bin/sh
# SPDX-License-Identifier: MIT
#
# rig.sh - sourced by the scripts of the VM rig: where things are, and what they share.
#
# Everything lands in $vm (build/vm):
#   root-NAME.tar, .img   user space of guests, Debian's current stable: what tests/vm/packages lists under NAME
#   qemu, qemu.root/      starts QEMU: the machine's, or where that is too old one from its backports, unpacked
#   kernel/K/             vmlinuz, initrd, modules.img, release and headers (a path) of kernel K
#   stage/                what guests see as /t; the same as an image, stage.img; whose modules it has, stage.kernels
#   supervise             runs one machine
#   accel                 kvm or tcg, as was found out
# Images are shared by all machines and never written once they exist. Who makes one holds its lock.

top=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${B:=$top/build}/vm"
B=$(cd "$B" && pwd)
export B
vm=$B/vm

say() {
	echo "vm: $*" >&2
}

die() {
	say "$*"
	exit 1
}

# What this machine lacks for good: the caller is skipped, not failed.
unable() {
	say "$*"
	exit 77
}

# stale TARGET SOURCE... - TARGET is missing, or a SOURCE is newer.
stale() {
	target=$1
	shift
	[ ! -e "$target" ] || [ -n "$(find "$@" -maxdepth 0 -newer "$target" 2>/dev/null)" ]
}

# locked NAME COMMAND... - run COMMAND while nobody else does under that name.
locked() {
	(
		flock 8
		shift
		"$@"
	) 8>"$vm/lock-$1"
}

# image DIR FILE - a file system with the contents of DIR. Not compressed: the host's page cache holds it, and an
# emulated processor unpacks slowly.
image() {
	rm -f "$2.new"
	mksquashfs "$1" "$2.new" -quiet -no-progress -no-xattrs -noI -noD -noF -noX -all-root >/dev/null
	mv "$2.new" "$2"
}

# QEMU 11.1 is the first whose vfio-user client serves.
host_qemu_serves() {
	version=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
	[ -n "$version" ] || return 1
	# shellcheck disable=SC2086 # two words
	set -- $version
	[ "$1" -gt 11 ] || { [ "$1" -eq 11 ] && [ "$2" -ge 1 ]; }
}

# of CASE KEY DEFAULT - what the header of test case CASE says of KEY.
of() {
	value=$(sed -n "s/^# vm:.*[[:space:]]$2=\([^[:space:]]*\).*/\1/p" "$top/tests/vm/cases/$1.sh" | head -n 1)
	echo "${value:-$3}"
}
