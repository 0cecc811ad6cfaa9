#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix about=user
# libtxda on the driver: two processes and two chips share buffers; a fault ends one queue, in words; a
# user of group render may do all of it, one without may not.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are "$(chip_count)" || fail "nodes"
udevadm settle
export TXDA_BACKEND=drm
before=$(txda-smi query --fields=memory_used_bytes)
as() {
	groups=$1
	shift
	setpriv --reuid=tester --regid=tester "$groups" "$@"
}

timeout 100 lib_client share || fail "share"
timeout 100 lib_client fault || fail "fault"
timeout 100 lib_client load 16 || fail "load"
as --groups=render timeout 100 lib_client share || fail "share, as a user"
as --groups=render timeout 100 lib_client fault || fail "fault, as a user"
as --clear-groups lib_client share >out 2>&1 && fail "anybody may use the chips"
grep -q 'group render' out || { cat out; fail "not told why"; }
after=$(txda-smi query --fields=memory_used_bytes)
[ "$after" = "$before" ] || fail "memory is left: $after, before $before"
