#!/bin/sh
# SPDX-License-Identifier: MIT
#
# lib.sh - sourced by test cases in the guest.

# The way out of a case: fail REASON, skip REASON; a case that ends with status 0 has passed.
fail() {
	echo "$*"
	exit 1
}

skip() {
	echo "$*"
	exit 77
}

# wait_for SECONDS COMMAND... - until COMMAND succeeds.
wait_for() {
	tries=$(($1 * 20))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.05
	done
}

# PCI addresses of the chips.
chip_list() {
	for device in /sys/bus/pci/devices/*; do
		[ "$(cat "$device/vendor" "$device/device" 2>/dev/null | tr -d '\n')" = 0x1af40x10f8 ] && echo "${device##*/}"
	done
	return 0
}

chip_count() {
	chip_list | grep -c .
}

chips_are() {
	[ "$(chip_count)" -eq "$1" ]
}

node_count() {
	find /dev/accel -maxdepth 1 -type c 2>/dev/null | grep -c .
}

nodes_are() {
	[ "$(node_count)" -eq "$1" ]
}

# load [PARAMETER...] - the module under test, with what it depends on.
load() {
	for module in $(modinfo -F depends /t/txda.ko | tr , ' '); do
		modprobe "$module" || return 1
	done
	insmod /t/txda.ko "$@"
}

loaded() {
	[ -d /sys/module/txda ]
}

unload() {
	rmmod txda
}

# udev_start - device nodes with owners and links, in a machine that runs without systemd.
udev_start() {
	[ ! -S /run/udev/control ] || return 0
	/usr/lib/systemd/systemd-udevd --daemon && udevadm trigger --subsystem-match=accel --subsystem-match=pci && udevadm settle
}

# plug N, unplug N - chip N in its slot, through the guest's hot-plug driver.
plug() {
	before=$(chip_count)
	vmhost add "$1" && wait_for 20 chips_are $((before + 1))
}

unplug() {
	vmhost del "$1"
}
