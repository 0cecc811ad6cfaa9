#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix
# A fault and a hang each leave one dump of the chip, which names the guilty queue. It outlives driver and chip.
. /rig/guest/lib.sh
load job_timeout_ms=500 || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
pci=$(chip_list)

dumps() {
	ls -d /sys/class/devcoredump/devcd* 2>/dev/null
}

dumps_are() {
	[ "$(dumps | grep -c .)" -eq "$1" ]
}

# take NAME - move the only dump to /tmp/NAME.
take() {
	wait_for 30 dumps_are 1 || fail "$(dumps | grep -c .) dumps of a $1"
	[ "$(stat -L -c %a "$(dumps)/data")" = 600 ] || fail "anybody reads the dump"
	cat "$(dumps)/data" >"/tmp/$1" || fail "cannot read the dump"
	echo 1 >"$(dumps)/data"
	wait_for 30 dumps_are 0 || fail "the dump stays after it was read"
}

# has NAME EXPRESSION...
has() {
	file=/tmp/$1
	shift
	for expression; do
		grep -Eq "$expression" "$file" || { cat "$file"; fail "no $expression in the dump"; }
	done
}

node_fault /dev/accel/accel0 1 || fail "node_fault"
take fault
has fault '^reason: fault$' "^device: $pci$" "^driver: txda [0-9.]+, kernel: $(uname -r | tr + .)$" '^answers: yes$' \
	'^FW_STATE: 0x2$' '^FAULT_RECORD:( [0-9a-f]{8}){12}$' '^hwq [0-9]+: state 2,' \
	'Guilty queue: 1 of process [1-9][0-9]*, copy' '^client: node_fault, id [1-9][0-9]*, user 0$' '^fault: code 1, .*va 0x700000' \
	'^  entry 0: seqno 1, stream 0x700000, 24 bytes' '^  0x100000 \+ 0x1000: ' \
	'^\[ *[0-9]+\.[0-9]{6}\] info: firmware: state 2, version 0x10000, error 0$' \
	'^\[ *[0-9]+\.[0-9]{6}\] info: queue [0-9]+: fault 1 at 0x700000, '

node_fault /dev/accel/accel0 1 hang || fail "node_fault hang"
take hang
has hang '^reason: hang$' '^hwq [0-9]+: state 1,.*packet 0x100000$' '^fault: code 9, .*packet 0x100000' \
	'^  entry 0: seqno 1, stream 0x100000, 24 bytes'
wc -c /tmp/fault /tmp/hang
[ "$(wc -c </tmp/hang)" -le 32768 ] || fail "a dump of $(wc -c </tmp/hang) bytes"

# One waits at a time, and none holds the module, which may be unbound when somebody looks.
node_fault /dev/accel/accel0 20 || fail "node_fault"
wait_for 30 dumps_are 1 || fail "$(dumps | grep -c .) dumps of 20 faults"
echo "$pci" >/sys/bus/pci/drivers/txda/unbind || fail "unbind"
dumps_are 1 || fail "$(dumps | grep -c .) dumps after unbinding"
unload || fail "a dump keeps the module loaded"
take fault
has fault '^reason: fault$' "^device: $pci$" 'Guilty queue: 1 of process'

# The same when the chip goes. The next one in its place has its own dump.
load || fail "insmod again"
wait_for 30 nodes_are 1 || fail "no node"
node_fault /dev/accel/accel0 1 || fail "node_fault"
wait_for 30 dumps_are 1 || fail "$(dumps | grep -c .) dumps"
echo 1 >"/sys/bus/pci/devices/$pci/remove"
dumps_are 1 || fail "$(dumps | grep -c .) dumps after a removal"
echo 1 >/sys/bus/pci/rescan
wait_for 30 nodes_are 1 || fail "no node after a rescan"
take fault
has fault '^reason: fault$'
node_fault /dev/accel/accel0 1 || fail "node_fault"
take fault
has fault '^reason: fault$'
