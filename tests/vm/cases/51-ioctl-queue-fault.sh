#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=4 irq=msix level=check
# Faults, hangs and the end of queues that work; as root, who can have the chip hang.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are "$(chip_count)" || fail "$(node_count) nodes of $(chip_count) chips"
ioctl_queue create-kinds create-high-unprivileged create-limit-of-chip || fail "ioctl_queue"
ioctl_queue_fault || fail "ioctl_queue_fault"
ioctl_group survives-fault-and-reset || fail "ioctl_group"

# Fences are good for those who hold them, also when the module wants to go. It goes at once where
# fences need nothing of it any more (7.2), and when they are gone where they do (6.12).
mkfifo go
ioctl_sync --hold <go >held &
holder=$!
exec 5>go
wait_for 30 grep -q held held || fail "no fences are held"
wait_for 5 rmmod txda 2>/dev/null
echo go >&5
exec 5>&-
wait $holder || fail "the fences went bad"
! loaded || wait_for 30 rmmod txda || fail "the module is still used"
