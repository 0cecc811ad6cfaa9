#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: dram=8G
# Idle buffers: their contents move to the host or are dropped when memory is short, and come back. As root, and as a user
# of group render who has no privilege at all. What was moved goes with its owner and with its chip.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
share_nodes || fail "the nodes' group"

# With memory free beyond the aperture.
ioctl_mem_idle never_fits no_room_in_aperture || fail "idle buffers and what never fits"
ioctl_mem_idle hold >/tmp/held &
holder=$!
wait_for 60 grep -q held /tmp/held || fail "memory cannot be held"
ioctl_mem_idle || fail "as root"
echo "== without privileges"
setpriv --reuid=tester --regid=tester --groups=render --inh-caps=-all "$(command -v ioctl_mem_idle)" \
	bad mapped_or_idle shared cpu_waits moves drops race || fail "without privileges"
kill $holder
wait $holder || true
for chip in /sys/kernel/debug/accel/*/chip; do
	grep -q '^idle buffers: 0 bytes moved' "$chip" || fail "moved contents are left: $(cat "$chip")"
done
