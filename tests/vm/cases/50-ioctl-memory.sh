#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: level=check
# The ioctls of address spaces and buffers: what they take, what they refuse, what the chip and other processes see. As
# root, and as a user of group render who has no privilege at all.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
share_nodes || fail "the nodes' group"
modprobe vgem || fail "vgem"
chmod 666 /dev/udmabuf /dev/dri/card*
ulimit -l 65536

areas="vm bo user share async apart"
! asked check || areas="vm user share"
for area in $areas; do
	echo "== $area"
	ioctl_mem_$area || fail "$area, as root"
done
! asked check || exit 0
# unprivileged AREA [TEST...]
unprivileged() {
	area=$1
	shift
	echo "== $area, without privileges"
	setpriv --reuid=tester --regid=tester --groups=render --inh-caps=-all "$(command -v ioctl_mem_$area)" "$@" ||
		fail "$area, without privileges"
}
for area in vm user share async; do
	unprivileged $area
done
# Not the one that fills a chip.
unprivileged bo create create_bad create_until_enough accounting query_bad label zero_for_the_chip write_combined map_bad map_huge map_lives
