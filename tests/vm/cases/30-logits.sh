#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix about=user
# Models through the kernel driver, on one chip and on groups of two and four, give the same logits as
# the device model in-process on the machine that runs the chips: bit for bit.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 4 || fail "$(node_count) nodes of 4 chips"
udevadm settle
export TXDA_BACKEND=drm
before=$(txda-smi query --fields=memory_used_bytes)

failed=
for file in /t/bits/*; do
	name=${file##*/}
	question=$(head -n 1 "$file")
	# shellcheck disable=SC2086 # options are words
	txda-verify "/t/cases/$name" $question --bits >out 2>&1 || { cat out; fail "$name: txda-verify"; }
	wanted=$(sed -n 2p "$file")
	got=$(grep '^bits ' out)
	echo "$name: $got"
	[ "$got" = "$wanted" ] || failed="$failed $name"
done
[ -z "$failed" ] || fail "other bits than in-process:$failed"

txda-smi || fail "txda-smi"
after=$(txda-smi query --fields=memory_used_bytes)
[ "$after" = "$before" ] || fail "memory is left: $after, before $before"
