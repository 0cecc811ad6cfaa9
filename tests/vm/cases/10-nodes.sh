#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: level=check
# The module says what it is. Each chip has a node with the right owner, links by slot and by serial, and answers DEV_QUERY; all
# of it goes with the module.
. /rig/guest/lib.sh

# A node is there before the kernel tells of it, so udevadm settle may be through too early.
leads_to() {
	[ "$(readlink -f "$1")" = "$2" ]
}

[ "$(modinfo -F license /t/txda.ko)" = GPL ] || fail "licence"
modinfo -F vermagic /t/txda.ko | grep -q "^$(uname -r) " || fail "built for another kernel"
modinfo -F alias /t/txda.ko | grep -q '^pci:v00001AF4d000010F8' || fail "no alias for the chip's PCI id"
[ -n "$(modinfo -F version /t/txda.ko)" ] || fail "no version"

udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
udevadm settle

for node in /dev/accel/accel[0-9]*; do
	owner=$(stat -c '%U:%G %a' "$node")
	[ "$owner" = "root:render 660" ] || fail "$node: $owner"
	address=$(basename "$(readlink -f "/sys/class/accel/${node##*/}/device")")
	link=/dev/accel/by-path/pci-$address-accel
	wait_for 30 leads_to "$link" "$node" || fail "$link is not $node: $(ls -l /dev/accel/by-path)"

	node_info "$node" >info || fail "DEV_QUERY on $node"
	cat info
	grep -q '^driver txda$' info || fail "$node: not ours"
	grep -q '^family 8$' info || fail "$node: no TX8"
	grep -q '^card_chips 2$' info || fail "$node: not a card of two"
	serial=$(sed -n 's/^serial //p' info)
	[ -n "$serial" ] || fail "$node has no serial"
	link=/dev/accel/by-id/txda-$serial
	wait_for 30 leads_to "$link" "$node" || fail "$link is not $node: $(ls -l /dev/accel/by-id)"

	# Nobody else reaches it; the group does.
	if setpriv --reuid=tester --regid=tester --clear-groups node_info "$node" 2>/dev/null; then
		fail "anybody may open $node"
	fi
	setpriv --reuid=tester --regid=tester --groups=render node_info "$node" >/dev/null ||
		fail "group render may not open $node"
done

unload || fail "rmmod"
wait_for 30 nodes_are 0 || fail "nodes are left: $(ls -l /dev/accel)"
udevadm settle
[ -z "$(find /dev/accel -type l 2>/dev/null)" ] || fail "links are left: $(ls -lR /dev/accel)"
chips_are 2 || fail "chips went with the module"
