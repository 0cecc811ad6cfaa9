#!/bin/sh
# SPDX-License-Identifier: MIT
#
# rig.sh - sourced by the scripts of the VM rig: where things are, and how programs of the guests'
# root file system are run on the host.
#
# Everything lands in $vm (build/vm):
#   root/            Debian's current stable: compilers, libraries, QEMU; the guests' user space
#   root.img         the same as a read-only image
#   kernel/K/        vmlinuz, initrd, modules.img (modules and headers), release, of kernel K
#   tree/NAME/       sources, objects and stage/ (what guests see as /t) of one source tree
#   supervise        runs one machine
# Images are shared by all machines and never written once they exist. Who makes one holds its lock.

top=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${B:=$top/build}/vm"
vm=$(cd "$B/vm" && pwd)
root=$vm/root

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

# in_root COMMAND... - run a program inside of the root file system, as its root user, with $vm as
# /vm. Mounts are seen by that program alone.
in_root() {
	map=
	[ "$(id -u)" -eq 0 ] || map="--user --map-root-user"
	# shellcheck disable=SC2016,SC2086 # for the inner shell; words or none
	unshare $map --mount sh -c '
		vm=$1
		shift
		mount --rbind /dev "$vm/root/dev" && mount --rbind /proc "$vm/root/proc" &&
			mount --bind "$vm" "$vm/root/vm" && exec chroot "$vm/root" "$@"
	' sh "$vm" "$@"
}

# in_copy COMMAND... - as in_root, on a scratch copy: the layers $lower, with what is written going to $work/upper.
# $work has the directories upper, work and root.
in_copy() {
	map=
	[ "$(id -u)" -eq 0 ] || map="--user --map-root-user"
	# shellcheck disable=SC2016,SC2086,SC2154 # for the inner shell; words or none; the caller's
	unshare $map --mount sh -c '
		work=$1
		lower=$2
		shift 2
		mount -t overlay -o "lowerdir=$lower,upperdir=$work/upper,workdir=$work/work" overlay "$work/root" &&
			mount --rbind /dev "$work/root/dev" && mount --rbind /proc "$work/root/proc" &&
			exec chroot "$work/root" "$@"
	' sh "$work" "$lower" "$@"
}

# of_root PROGRAM ARG... - run a program of the root file system on the host's files.
of_root() {
	program=$1
	shift
	"$root/lib64/ld-linux-x86-64.so.2" --argv0 "${program##*/}" \
		--library-path "$root/usr/lib/x86_64-linux-gnu" "$program" "$@"
}

# QEMU 11.1 is the first whose vfio-user client serves.
host_qemu_serves() {
	version=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
	[ -n "$version" ] || return 1
	# shellcheck disable=SC2086 # two words
	set -- $version
	[ "$1" -gt 11 ] || { [ "$1" -eq 11 ] && [ "$2" -ge 1 ]; }
}

# qemu_command - how QEMU is started, as words: the host's, or that of the root file system.
qemu_command() {
	if host_qemu_serves; then
		echo qemu-system-x86_64
	else
		echo "env QEMU_MODULE_DIR=$root/usr/lib/x86_64-linux-gnu/qemu $root/lib64/ld-linux-x86-64.so.2" \
			"--argv0 qemu-system-x86_64 --library-path $root/usr/lib/x86_64-linux-gnu" \
			"$root/usr/bin/qemu-system-x86_64 -L $root/usr/share/qemu -L $root/usr/share/seabios"
	fi
}

# of CASE KEY DEFAULT - what the header of test case CASE says of KEY.
of() {
	value=$(sed -n "s/^# vm:.*[[:space:]]$2=\([^[:space:]]*\).*/\1/p" "$top/tests/vm/cases/$1.sh" | head -n 1)
	echo "${value:-$3}"
}

# record RESULT NAME [REASON] - the result of a test, for check.sh: OK, FAIL or SKIP.
record() {
	printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$TXDA_VM_WORK/results"
	printf '   %-4s %s%s\n' "$1" "$2" "${3:+: $3}"
}
