#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix append=swiotlb=force
# A machine whose DMA goes through bounce buffers, as in confidential virtual machines: the driver refuses host memory,
# of which chip and CPU would see different copies, and logs that; device memory works.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
ioctl_mem_bounce || fail "ioctl_mem_bounce"
dmesg | grep -q "txda .*DMA goes through swiotlb" || fail "no word about swiotlb"
