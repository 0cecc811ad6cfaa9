#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix kernels=debug
# Device memory that a control group may have, and its idle buffers that make room (Debian's own kernels are built without CONFIG_CGROUP_DMEM).
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
region=drm/$(chip_list)/vram
top=/sys/fs/cgroup
echo +dmem >$top/cgroup.subtree_control || fail "no dmem controller"
mkdir $top/limited
total=$(cat "/sys/bus/pci/devices/$(chip_list)/npu_memory_total")
grep -qxF "$region $total" $top/dmem.capacity || fail "the region: $(cat $top/dmem.capacity)"

# in_group COMMAND...
in_group() {
	sh -c 'echo $$ >/sys/fs/cgroup/limited/cgroup.procs && exec "$@"' in_group "$@"
}

held() {
	sed -n "s,^$region ,,p" $top/limited/dmem.current
}

# node_load has 2 MiB.
echo "$region 1048576" >$top/limited/dmem.max || fail "dmem.max"
! in_group node_load -s 1 /dev/accel/accel0 >/tmp/load 2>&1 || fail "a buffer above the limit: $(cat /tmp/load)"
nothing_held() {
	[ "$(held)" -eq 0 ]
}
wait_for 30 nothing_held || fail "what was refused is charged: $(held)"
node_load -s 1 /dev/accel/accel0 >/tmp/load 2>&1 || fail "others are limited, too: $(cat /tmp/load)"
echo "$region 3145728" >$top/limited/dmem.max
# Not in_group: the shell that runs a function in the background ignores SIGINT, and $! is that shell.
sh -c 'echo $$ >/sys/fs/cgroup/limited/cgroup.procs && exec node_load -s 1000 /dev/accel/accel0' >/tmp/load 2>&1 &
client=$!
holds() {
	[ "$(held)" -eq 2097152 ]
}
wait_for 30 holds || fail "charged: $(held)"
! in_group node_load -s 1 /dev/accel/accel0 >/tmp/second 2>&1 || fail "two clients have more than the limit"
kill -INT $client
wait $client || fail "$(cat /tmp/load)"
wait_for 30 nothing_held || fail "still charged: $(held)"

# Idle buffers make room. Most of the chip's memory is held, so that there is little to fill.
echo "$region max" >$top/limited/dmem.max
ioctl_mem_idle hold >/tmp/held &
holder=$!
wait_for 60 grep -q held /tmp/held || fail "memory cannot be held"
DMEM_GROUP=$top/limited DMEM_REGION=$region ioctl_mem_idle group_limit group_protected || fail "limits and idle buffers"
kill $holder
wait $holder || true
wait_for 30 nothing_held || fail "charged after the idle buffers: $(held)"
rmdir $top/limited || fail "the group is still used"
unload || fail "rmmod"
! grep -q "^$region " $top/dmem.capacity || fail "a region without a chip"
load || fail "insmod again"
