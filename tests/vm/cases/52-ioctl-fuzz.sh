#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel level=check
# All ioctls at random for a while, as a user without privileges. By hand, for longer:
#   tests/vm/run.sh -n 2 -l 900 -- ". /rig/guest/lib.sh; load; ioctl_fuzz --seconds 600"
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
share_nodes || fail "the nodes' group"
setpriv --reuid=tester --regid=tester --groups=render ioctl_overrun || fail "ioctl_overrun"
setpriv --reuid=tester --regid=tester --groups=render ioctl_fuzz --seconds "$(asked check && echo 3 || echo 10)" || fail "ioctl_fuzz"
# What waited for fences of the fuzzer goes on its own.
wait_for 60 rmmod txda || fail "the module is still used"
