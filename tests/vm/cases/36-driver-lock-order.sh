#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel about=chip
# Removal, reset and close in one life of the module: each takes locks that the others take, and a kernel that watches
# their order (check-vm K=debug) must see all of it.
. /rig/guest/lib.sh
load job_timeout_ms=2000 || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
# Buffers of a peer go with a mapping, with a file, with the chip that has them and with the one that uses them.
ioctl_mem_share peer_device peer_gives_back read_only_peer || fail "sharing"
ioctl_mem_gone peers importer binds function_reset || fail "removal"
ioctl_group meet-two member-destroyed || fail "groups"
ioctl_recover flush-of-unmap reset-of-chip || fail "reset"
device=/sys/bus/pci/devices/$(chip_list | head -n 1)
node_load -s 1000 "/dev/accel/$(ls "$device/accel")" >/tmp/load 2>&1 &
client=$!
for how in function chip function; do
	case $how in
	function) echo 1 >"$device/reset" || fail "reset" ;;
	chip)
		resets=$(cat "$device/reset_count")
		vmhost trip 0 || fail "trip"
		reset_again() {
			[ "$(cat "$device/reset_count")" -gt "$resets" ]
		}
		wait_for 30 reset_again || fail "no reset after a trip"
		;;
	esac
done
kill -INT $client
wait $client || { cat /tmp/load; fail "a client of a chip that was reset"; }
