#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix about=chip
# Device memory is zero before a buffer gets it, and is seldom cleared while one waits: contents are written once.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
udevadm settle
export TXDA_BACKEND=drm
pmu=/sys/bus/event_source/devices/txda_0
wait_for 30 test -d $pmu || fail "no PMU"
mkfifo /tmp/ask /tmp/counts
count_events dram_written </tmp/ask >/tmp/counts &
counter=$!
exec 4>/tmp/ask 5</tmp/counts

written() {
	echo >&4
	read -r count <&5 || fail "no counts"
}

# Until MIB were written.
writes() {
	written
	[ $((count - from)) -ge $(($1 << 20)) ]
}

rests() {
	written
	last=$count
	sleep 1
	written
	[ "$count" -eq "$last" ]
}

# A client copies 64 MiB four times and leaves 64, which are then cleared. Nothing is cleared when it begins: the function
# was reset, and then its memory was cleared behind the one before.
written
from=$count
for _ in 1 2 3; do
	lib_client load 64 >/tmp/out 2>&1 || fail "$(cat /tmp/out)"
done
wait_for 30 writes 960 || fail "$(((count - from) >> 20)) MiB written, 960 were to be: what clients left is not cleared"
wait_for 30 rests || fail "it goes on writing"
[ $((count - from)) -le $((968 << 20)) ] || fail "$(((count - from) >> 20)) MiB written, 960 were to be: new buffers are cleared"

# Nobody sees what another has left, however far the clearing is.
for _ in 1 2 3; do
	lib_client load 64 >/tmp/out 2>&1 || fail "$(cat /tmp/out)"
	ioctl_mem_bo zero zero_for_the_chip >/tmp/out 2>&1 || fail "$(cat /tmp/out)"
done

# After a reset by others nothing is taken for granted, and nothing cleared in advance.
echo 1 >"/sys/bus/pci/devices/$(chip_list)/reset" || fail "reset"
written
from=$count
lib_client load 64 >/tmp/out 2>&1 || fail "after a reset: $(cat /tmp/out)"
wait_for 30 writes 320 || fail "after a reset $(((count - from) >> 20)) MiB written, 320 were to be"
exec 4>&- 5<&-
wait $counter || fail "the counter"
