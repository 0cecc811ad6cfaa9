#!/bin/sh
# SPDX-License-Identifier: MIT
#
# lib.sh - sourced by test cases in the guest.

# The way out of a case: fail REASON, skip REASON; a case that ends with status 0 has passed.
fail() {
	echo "$*"
	exit 1
}

# asked long, asked check - whether this run is one with LONG=1, or of check.sh -1.
asked() {
	grep -qw "txda.storms=$1" /proc/cmdline
}

# storm N - how often to repeat a stress test: N times with LONG=1, a tenth of that by default, a fortieth with check.sh -1.
storm() {
	if asked long; then
		echo "$1"
	elif asked check; then
		echo $((($1 + 39) / 40))
	else
		echo $((($1 + 9) / 10))
	fi
}

skip() {
	echo "$*"
	exit 77
}

# A kernel that watches itself (check-vm K=debug) is several times slower.
slow=1
[ ! -e /sys/kernel/debug/kmemleak ] || slow=4

# wait_for SECONDS COMMAND... - until COMMAND succeeds; a debug kernel gets more of them. After a second it looks less
# often: each look starts programs, which takes an emulated processor more time than it waits.
wait_for() {
	tries=$(($1 * 5 * slow))
	shift
	often=20
	until "$@"; do
		if [ $often -gt 0 ]; then
			often=$((often - 1))
			sleep 0.05
			continue
		fi
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.2
	done
}

# drop_dumps - what devcoredump keeps of chips for five minutes, whether or not they and their driver are there.
drop_dumps() {
	for dump in /sys/class/devcoredump/devcd*/data; do
		[ ! -e "$dump" ] || echo 1 >"$dump"
	done
}

# Kernel memory that nobody can reclaim, in KiB.
kernel_memory() {
	drop_dumps
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^(SUnreclaim|VmallocUsed|Percpu|KernelStack):/ { sum += $2 } END { print sum }' /proc/meminfo
}

# kernel_memory_is BEFORE MORE - about as much as BEFORE, at most MORE KiB more. A kernel that watches itself
# holds back what was freed, and looks for leaks with other means.
kernel_memory_is() {
	after=$(kernel_memory)
	echo "kernel memory: $1 KiB, then $after KiB"
	[ $slow -gt 1 ] || [ "$after" -lt $(($1 + $2)) ]
}

# PCI addresses of the chips. Nothing here starts a program: that takes its time on an emulated
# processor.
chip_list() {
	for device in /sys/bus/pci/devices/*; do
		read -r vendor <"$device/vendor"
		read -r id <"$device/device"
		[ "$vendor $id" != "0x1af4 0x10f8" ] || echo "${device##*/}"
	done 2>/dev/null
}

chip_count() {
	n=0
	for _ in $(chip_list); do
		n=$((n + 1))
	done
	echo $n
}

chips_are() {
	[ "$(chip_count)" -eq "$1" ]
}

node_count() {
	n=0
	for node in /dev/accel/accel[0-9]*; do
		[ ! -c "$node" ] || n=$((n + 1))
	done
	echo $n
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

# What `make install` makes of the tree.
prefix=/usr/local
# shellcheck disable=SC2034 # for cases
settings=$prefix/etc/txda/txdad.conf

# install_module - as an installed module, which udev loads for a chip. It looks for a new index of modules every three
# seconds only, unless it is told.
install_module() {
	mkdir -p "/usr/lib/modules/$(uname -r)/updates"
	cp /t/txda.ko "/usr/lib/modules/$(uname -r)/updates/"
	{ depmod -a && udevadm control --reload; } || fail "depmod"
}

# share_nodes - the chips' nodes are open to group render, as the rules have it. Where udevd runs (an earlier case may
# have started it) it is about to do the same.
share_nodes() {
	[ ! -S /run/udev/control ] || udevadm settle
	chgrp render /dev/accel/accel* && chmod 660 /dev/accel/accel*
}

loaded() {
	[ -d /sys/module/txda ]
}

# The last references go a moment after the file that held them.
unload() {
	wait_for 30 rmmod txda 2>/dev/null || rmmod txda
}

# udev_start - device nodes with owners and links, in a machine that runs without systemd.
udev_start() {
	[ ! -S /run/udev/control ] || return 0
	/usr/lib/systemd/systemd-udevd --daemon && udevadm trigger --subsystem-match=accel --subsystem-match=pci && udevadm settle
}

# sleep_and_wake - suspend to memory and back. The firmware of QEMU's q35 leaves PCI's extended
# configuration space switched off after that, and the hot-plug driver, which finds the chips' serial
# numbers there, would take them for other chips: such cases have append=pci=nommconf+pcie_ports=native
# in their header.
sleep_and_wake() {
	vmhost wake-on-suspend && echo mem >/sys/power/state
}

# plug N, unplug N - chip N in its slot, through the guest's hot-plug driver.
plug() {
	before=$(chip_count)
	vmhost add "$1" && wait_for 60 chips_are $((before + 1))
}

unplug() {
	vmhost del "$1"
}

# unplug_all - by the guest itself, which is quicker.
unplug_all() {
	for slot in /sys/bus/pci/slots/*; do
		for device in $(chip_list); do
			[ "$(cat "$slot/address")" != "${device%.*}" ] || echo 0 >"$slot/power"
		done
	done
	wait_for 60 chips_are 0 || fail "chips stay"
}
