#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: timeout=1800 kernels=debug
# Allocation failures at every place in every ioctl, one after the other.
. /rig/guest/lib.sh
. /rig/guest/failslab.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
# Idle buffers move when a control group's limit is reached.
first=$(for chip in $(chip_list); do echo "$(cat /sys/bus/pci/devices/$chip/card_index) $chip"; done | sort -n | sed -n '1s/.* //p')
region=drm/$first/vram
group=/sys/fs/cgroup/limited
echo +dmem >/sys/fs/cgroup/cgroup.subtree_control || fail "no dmem controller"
mkdir $group
DMEM_GROUP=$group DMEM_REGION=$region ioctl_failnth || fail "ioctls"
nothing_held() {
	! grep -q '/vram [1-9]' $group/dmem.current
}
wait_for 30 nothing_held || fail "still charged: $(cat $group/dmem.current)"
rmdir $group
for chip in /sys/kernel/debug/accel/*/chip; do
	grep -q '^idle buffers: 0 bytes moved' "$chip" || fail "moved contents are left: $(cat "$chip")"
done
