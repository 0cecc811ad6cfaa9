#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 dram=128M irq=msix
# What page tables one user may have, on a chip that is small enough to be filled with them.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
chmod 666 /dev/accel/accel*
ioctl_mem_vm tables_of_a_user || fail "ioctl_mem_vm"
