#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix about=chip
# A user decodes beside another who takes all that one user may have, and no reset becomes necessary.
#
# Prints how fast it does so compared with a neighbour who decodes, too. The chip computes, and clears memory, with processors
# that it takes from the guest's emulator, so what the tenant has it do there costs more than it would on a chip; to see it,
# or one harm alone:
#   sh tests/vm/run.sh -n 1 -l 900 -- "HARM=binds sh /rig/cases/39-driver-tenants.sh"
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
share_nodes || fail "nodes of group render"
device=/sys/bus/pci/devices/$(chip_list)
export TXDA_BACKEND=drm
top=/sys/fs/cgroup
resets=$(cat "$device/reset_count")

# As systemd has it, each user gets the same part of the processors.
mount | grep -q " $top " || mount -t cgroup2 none $top || fail "no control groups"
echo +cpu >$top/cgroup.subtree_control || fail "no cpu controller"
mkdir $top/one $top/other || fail "control groups"

# as GROUP USER COMMAND... - in the background, where it becomes COMMAND.
as() {
	exec sh -c 'echo $$ >'"$top/$1"'/cgroup.procs && shift 2 && exec setpriv --reuid="$0" --regid=tester --groups=render "$@"' "$2" "$@"
}

# decodes ANSWERS - the command, by its answers' tokens.
decodes() {
	echo "txda-bench model --json --batch 1 --input 16 --output $1 /t/cases/demo-tp1"
}

begun() {
	[ "$(grep -c tps /tmp/one)" -ge 1 ]
}

# beside COMMAND... - what the last answer's tokens per second are while another user runs COMMAND.
beside() {
	# shellcheck disable=SC2046 # words
	as one 20001 $(decodes "16,$(storm 2000),$(storm 2000)") >/tmp/one 2>&1 &
	one=$!
	wait_for 60 begun || fail "it does not decode: $(cat /tmp/one)"
	as other tester "$@" >/tmp/other 2>&1 &
	other=$!
	wait $one || fail "beside $1: $(cat /tmp/one)"
	[ -d /proc/$other ] || fail "$1 has ended: $(tail -n 20 /tmp/other)"
	kill $other
	wait $other
	status=$?
	tps=$(sed -n '$s/.*"tps":\([0-9.]*\).*/\1/p' /tmp/one)
}

# All. A debug kernel takes much longer to accept a bind than to do it, so it never has too many of them.
harms=${HARM:-}
[ $slow -eq 1 ] || harms=${HARM:-interrupts spaces memory}

for _ in $(seq "$(storm 10)"); do
	# shellcheck disable=SC2046 # words
	beside $(decodes "$(seq -s , 1500 1515)")
	decodes=$tps
	# shellcheck disable=SC2086 # words
	beside ioctl_tenant $harms
	[ $status -eq 0 ] || fail "ioctl_tenant: $(tail -n 20 /tmp/other)"
	tail -n 1 /tmp/other
	echo "$decodes tokens a second beside one who decodes, $tps beside one who takes all, $(echo "$decodes $tps" | awk '{ printf "%.2f", $2 / $1 }')"
done
[ "$(cat "$device/reset_count")" -eq "$resets" ] || fail "$(cat "$device/reset_count") resets, $resets before"
# The kernel ends a tenant's fills a moment after the tenant.
empty() {
	rmdir $top/one $top/other 2>/dev/null
	[ ! -e $top/one ] && [ ! -e $top/other ]
}
wait_for 30 empty || fail "processes are left: $(cat $top/other/cgroup.procs)"
