#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: timeout=1800 kernels=debug
# Allocation failures at every place (a short run: some of them) in binding a chip and in loading the module, one after
# the other; then at random, in the driver's own threads too.
. /rig/guest/lib.sh
. /rig/guest/failslab.sh
every=8
! asked long || every=1
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"

echo "== binding a chip"
driver=/sys/bus/pci/drivers/txda
chip=$(chip_list | head -n 1)
echo "$chip" >$driver/unbind || fail "unbind"
ioctl_failnth --write $driver/bind "$chip" $driver/unbind 1 $every || fail "binding"
echo "$chip" >$driver/bind || fail "bind after all"
wait_for 30 nodes_are 2 || fail "nodes after all"
node_load -s 1 "/dev/accel/$(ls "/sys/bus/pci/devices/$chip/accel")" || fail "no work after all"

echo "== at random, wherever the module is on the stack"
text=$(symbols . txda)
[ -n "$text" ] || fail "no txda in /proc/kallsyms"
echo "$text" | head -n 1 >/sys/kernel/debug/failslab/require-start
echo "$text" | tail -n 1 >/sys/kernel/debug/failslab/require-end
echo 5 >/sys/kernel/debug/failslab/probability
echo -1 >/sys/kernel/debug/failslab/times
chmod 666 /dev/accel/*
ioctl_fuzz --processes 2 --seconds 20
echo 0 >/sys/kernel/debug/failslab/probability
for node in /dev/accel/accel*; do
	node_load -s 1 "$node" || fail "no work of $node after all"
done
wait_for 60 rmmod txda || fail "the module is still used"

echo "== loading the module"
echo 0 >/sys/kernel/debug/failslab/require-start
printf '%s\n' 0xffffffffffffffff >/sys/kernel/debug/failslab/require-end
echo 0 >/sys/bus/pci/drivers_autoprobe
ioctl_failnth --module /t/txda.ko $every || fail "loading"
echo 1 >/sys/bus/pci/drivers_autoprobe
