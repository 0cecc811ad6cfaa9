#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel
# A chip that works is unbound, removed from the bus and found again, and its module waits for open files.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
pci=$(chip_list | head -n 1)
device=/sys/bus/pci/devices/$pci

# begin - two clients, of which one keeps its file and mappings.
begin() {
	node=$(ls "$device/accel")
	mkfifo /tmp/end
	node_load -p 20 -g -k -s 1000 "/dev/accel/$node" </tmp/end >/tmp/first 2>&1 &
	first=$!
	node_load -p 20 -g -s 1000 "/dev/accel/$node" >/tmp/second 2>&1 &
	second=$!
	exec 4>/tmp/end
	wait_for 30 has_opened || { cat /tmp/first; fail "the first client opens no node"; }
}

has_opened() {
	find "/proc/$first/fd" -lname '/dev/accel/*' | grep -q .
}

end() {
	wait_for 30 grep -q 'gone 1' /tmp/first || { cat /tmp/first; fail "the first client does not see it"; }
	wait $second || { cat /tmp/second; fail "second client"; }
	! rmmod txda 2>/dev/null || fail "unloaded with an open file"
	exec 4>&-
	wait $first || { cat /tmp/first; fail "first client"; }
	rm /tmp/end
}

for i in 1 2 3 4 5 6 7 8 9 10; do
	begin
	sleep 0.$i
	echo "$pci" >/sys/bus/pci/drivers/txda/unbind || fail "unbind"
	end
	echo "$pci" >/sys/bus/pci/drivers/txda/bind || fail "bind"
	wait_for 30 nodes_are 2 || fail "$(node_count) nodes after bind"

	begin
	sleep 0.$i
	echo 1 >"$device/remove" || fail "remove"
	end
	chips_are 1 || fail "$(chip_count) chips after remove"
	echo 1 >/sys/bus/pci/rescan || fail "rescan"
	wait_for 30 nodes_are 2 || fail "$(node_count) nodes after rescan"
done
node_load -s 1 "/dev/accel/$(ls "$device/accel")" || fail "no work after all"
