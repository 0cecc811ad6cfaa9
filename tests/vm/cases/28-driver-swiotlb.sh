#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 append=swiotlb=force about=chip
# A machine whose DMA goes through bounce buffers, as in confidential virtual machines: no host memory that chip and CPU
# would see differently, and a word about it; device memory works.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
ioctl_mem_bounce || fail "ioctl_mem_bounce"
dmesg | grep -q "txda .*DMA goes through swiotlb" || fail "no word about swiotlb"
