#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=fast chips=2 irq=msi timeout=1800 kernels=debug
# Memory that is not to be had: at each single place in every ioctl, in binding a chip and in loading the module, one
# after the other (a short run: some of those of the last two); then at random, in the driver's own threads too.
. /rig/guest/lib.sh
injection=/sys/kernel/debug
[ -d $injection/failslab ] || skip "no fault injection in this kernel"
every=16
! grep -qw txda.long=1 /proc/cmdline || every=1
# All kinds of allocations, and no word in the log for each that fails.
for attribute in failslab fail_page_alloc fail_usercopy; do
	echo 0 >$injection/$attribute/verbose
done
echo N >$injection/failslab/ignore-gfp-wait
echo N >$injection/fail_page_alloc/ignore-gfp-wait
echo N >$injection/fail_page_alloc/ignore-gfp-highmem
echo 0 >$injection/fail_page_alloc/min-order

# The kernel's buddy allocator puts a block that it cannot split back where it still is, and its next
# allocation is a BUG (7.2, alloc_from_freetree()): it is spared.
buddy=$(awk '$3 ~ /gpu_buddy_/ && $2 ~ /[tT]/ { print $1 }' /proc/kallsyms | sort)
[ -n "$buddy" ] || fail "no buddy allocator in /proc/kallsyms"
echo "0x$(echo "$buddy" | head -n 1)" >$injection/failslab/reject-start
echo "0x$(echo "$buddy" | tail -n 1)" >$injection/failslab/reject-end
echo 32 >$injection/failslab/stacktrace-depth

load || fail "insmod"
wait_for 20 nodes_are 2 || fail "nodes"
echo "== every ioctl"
ioctl_failnth || fail "ioctls"

echo "== binding a chip"
driver=/sys/bus/pci/drivers/txda
chip=$(chip_list | head -n 1)
echo "$chip" >$driver/unbind || fail "unbind"
ioctl_failnth --write $driver/bind "$chip" $driver/unbind 1 $every || fail "binding"
echo "$chip" >$driver/bind || fail "bind after all"
wait_for 20 nodes_are 2 || fail "nodes after all"
node_load -s 1 "/dev/accel/$(ls "/sys/bus/pci/devices/$chip/accel")" || fail "no work after all"

echo "== at random, wherever the module is on the stack"
text=/sys/module/txda/sections
start=$(cat $text/.text)
echo "$start" >$injection/failslab/require-start
printf '0x%x\n' $((start + 0x100000)) >$injection/failslab/require-end
echo 32 >$injection/failslab/stacktrace-depth
echo 5 >$injection/failslab/probability
echo -1 >$injection/failslab/times
chmod 666 /dev/accel/*
ioctl_fuzz --processes 2 --seconds 20
echo 0 >$injection/failslab/probability
for node in /dev/accel/accel*; do
	node_load -s 1 "$node" || fail "no work of $node after all"
done
wait_for 60 unload || fail "the module is still used"

echo "== loading the module"
echo 0 >/sys/bus/pci/drivers_autoprobe
ioctl_failnth --module /t/txda.ko $every || fail "loading"
echo 1 >/sys/bus/pci/drivers_autoprobe
