#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd chips=2 irq=msi plug=later timeout=180
# The module says what it is, and comes and goes without a chip.
. /rig/guest/lib.sh
modinfo /t/txda.ko || fail "modinfo does not read it"
[ "$(modinfo -F license /t/txda.ko)" = GPL ] || fail "licence"
modinfo -F vermagic /t/txda.ko | grep -q "^$(uname -r) " || fail "built for another kernel"
modinfo -F alias /t/txda.ko | grep -q '^pci:v00001AF4d000010F8' || fail "no alias for the chip's PCI id"
[ -n "$(modinfo -F version /t/txda.ko)" ] || fail "no version"
for _ in 1 2 3; do
	load || fail "insmod"
	loaded || fail "not in /sys/module"
	nodes_are 0 || fail "nodes without chips"
	unload || fail "rmmod"
done
! loaded || fail "still there"
