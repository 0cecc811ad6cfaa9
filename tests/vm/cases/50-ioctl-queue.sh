#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix
# Queues, syncobjs and groups by their ioctls, as a user without privileges.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 4 || fail "$(node_count) nodes of 4 chips"
share_nodes || fail "the nodes' group"
for program in ioctl_queue ioctl_sync ioctl_group; do
	setpriv --reuid=tester --regid=tester --groups=render $program || fail "$program"
done
setpriv --reuid=tester --regid=tester --groups=render ioctl_mem_share peer-all || fail "traffic between any two chips"
