#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# A chip that does not do as it is told: flushes that do not end, a chip reset that does not end; the next deeper reset
# brings it back, and what was set aside meanwhile is free again.
. /rig/guest/lib.sh
load job_timeout_ms=60000 || fail "insmod"
wait_for 30 nodes_are 2 || fail "$(node_count) nodes of 2 chips"
device=/sys/bus/pci/devices/$(chip_list | head -n 1)
# Each flush that does not end takes ten seconds: all of them in a full run, else one.
tests="flush-of-async-unmap reset-of-chip"
! asked long || tests=
# shellcheck disable=SC2086 # words or none
ioctl_recover $tests || fail "ioctl_recover"
[ "$(cat "$device/state")" = up ] || fail "the chip is $(cat "$device/state")"
dmesg | grep -q "does not come back from a reset .*, trying the function" || fail "no word of the function's reset"
node_load -s 1 /dev/accel/accel1 || fail "the other chip"
