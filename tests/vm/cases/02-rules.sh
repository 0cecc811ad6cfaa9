#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=systemd chips=2 irq=msi plug=later timeout=180
# udev and modprobe understand what is installed.
. /rig/guest/lib.sh
rules=/usr/lib/udev/rules.d/60-txda.rules
[ -e $rules ] || fail "the rules are not installed"
udevadm verify --resolve-names=late $rules || fail "udevadm verify"
# A file that modprobe cannot read is named on its standard error.
messages=$(modprobe --showconfig 2>&1 >/dev/null | grep txda)
[ -z "$messages" ] || fail "modprobe.d: $messages"
[ -e /usr/lib/modprobe.d/txda.conf ] || fail "modprobe.d/txda.conf is not installed"
