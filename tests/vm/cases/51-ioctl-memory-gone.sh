#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel
# Memory of a chip that is unbound, bound again and reset under its users: SIGBUS instead of anybody's bytes, peers cut
# off, host memory kept, everything given back.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
for _ in $(seq "$(storm 20)"); do
	ioctl_mem_gone || fail "ioctl_mem_gone"
done
nodes_are 2 || fail "$(node_count) nodes"
unload || fail "rmmod"
