#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=fast chips=2 timeout=300
# Faults, hangs and the end of queues that work; as root, who can have the chip hang.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 20 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
ioctl_queue || fail "ioctl_queue"
ioctl_queue_fault || fail "ioctl_queue_fault"
ioctl_group survives-fault-and-reset || fail "ioctl_group"
