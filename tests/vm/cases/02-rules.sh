#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd plug=later about=user
# udev and modprobe understand what is installed, and the module loads without a chip.
. /rig/guest/lib.sh
rules=$prefix/lib/udev/rules.d/60-txda.rules
[ -e $rules ] || fail "the rules are not installed"
udevadm verify --resolve-names=late $rules || fail "udevadm verify"
# A file that modprobe cannot read is named on its standard error.
messages=$(modprobe --showconfig 2>&1 >/dev/null | grep txda)
[ -z "$messages" ] || fail "modprobe.d: $messages"
[ -e $prefix/lib/modprobe.d/txda.conf ] || fail "modprobe.d/txda.conf is not installed"
load && loaded || fail "insmod"
nodes_are 0 || fail "nodes without chips"
unload || fail "rmmod"
