#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel
# Threads that do everything at once to the same few buffers and address spaces: nothing is left in the end.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
ulimit -l 65536
ioctl_mem_race || fail "ioctl_mem_race"
unload || fail "rmmod"
