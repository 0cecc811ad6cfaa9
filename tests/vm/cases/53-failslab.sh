#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=fast chips=2 irq=msi timeout=1800 kernels=debug
# Memory that is not to be had, at each single place in every ioctl, one after the other.
. /rig/guest/lib.sh
. /rig/guest/failslab.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
ioctl_failnth || fail "ioctls"
