#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix about=chip
# More clients than hardware queues take turns, and none of them harms or starves another.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
pci=$(chip_list)
device=/sys/bus/pci/devices/$pci
users=/sys/kernel/debug/accel/$pci/users
share_nodes || fail "nodes of group render"

setpriv --reuid=tester --regid=tester --groups=render ioctl_queue_share create-flag create-limit harm || fail "as a user"
ioctl_queue_share create-limit many too-long stopped || fail "ioctl_queue_share"
# Tests that hold the shared queues for a while: by the limit they would be over.
echo 600000 >"$device/job_timeout_ms" || fail "job_timeout_ms"
setpriv --groups=render ioctl_queue_share create-flag heavy parked reset killed remembered || fail "with gates"
grep -q 'user 20001:' "$users" && fail "users: $(cat "$users")"

# Jobs that wait for their turn while the function is reset, and while the driver goes.
park() {
	rm -f /tmp/parked
	ioctl_queue_share --park >/tmp/parked 2>&1 &
	parker=$!
	wait_for 60 grep -q '^parked' /tmp/parked || fail "nothing is parked: $(cat /tmp/parked)"
}

park
grep -Eq 'user 0: .* 0 copy queues, [1-9][0-9]* shared queues' "$users" || fail "users: $(cat "$users")"
echo 1 >"$device/reset" || fail "reset"
wait $parker || fail "parked in a reset: $(cat /tmp/parked)"
park
echo "$pci" >/sys/bus/pci/drivers/txda/unbind || fail "unbind"
wait $parker || fail "parked in an unbind: $(cat /tmp/parked)"
echo "$pci" >/sys/bus/pci/drivers/txda/bind || fail "bind"
wait_for 30 nodes_are 1 || fail "no node after bind"
ioctl_queue_share many || fail "no work after all"
