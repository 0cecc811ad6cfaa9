#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# Generic netlink: a dump of the chips, and an event for whatever happens to one.
. /rig/guest/lib.sh
! nl_events dump >/dev/null 2>&1 || fail "the family is there without the driver"
load job_timeout_ms=1000 || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
pci=$(chip_list | head -n 1)
device=/sys/bus/pci/devices/$pci
node=$(ls "$device/accel")

nl_events dump >/tmp/dump || fail "dump"
cat /tmp/dump
[ "$(grep -c '^device ' /tmp/dump)" -eq 2 ] || fail "a dump of $(grep -c . /tmp/dump) chips"
card=$(printf %u "0x$(cat "$device/card")")
grep -q "minor=${node#accel} pci=$pci serial=$(cat "$device/serial") card=$card card_index=0 faults=0 resets=0" /tmp/dump ||
	fail "$pci is not in the dump as it is"
# Anybody may ask.
setpriv --reuid=tester --clear-groups nl_events dump >/dev/null || fail "no dump for an ordinary user"

# Who a fault was of, and where in its memory, is for administrators.
if setpriv --reuid=tester --clear-groups --inh-caps=-all nl_events listen 1 clients >/dev/null 2>&1; then
	fail "an ordinary user hears of clients"
fi
nl_events listen 60 clients >/tmp/clients &
admin=$!
setpriv --reuid=tester --clear-groups nl_events listen 60 events >/tmp/events &
listener=$!
for heard in events clients; do
	wait_for 30 grep -q ready /tmp/$heard || fail "nobody listens to $heard"
done

# told KIND EXPRESSION
told() {
	for heard in events clients; do
		wait_for 15 grep -Eq "^event $1 .*$2" /tmp/$heard || { cat /tmp/$heard; fail "no event $1 with $2 to $heard"; }
	done
}

vmhost inject ecc-corrected:chip=0 || fail "inject"
node_load -s 1 "/dev/accel/$node" || fail "no work"
told ecc "ecc_corrected=[1-9].*pci=$pci"
vmhost inject thermal:chip=0 || fail "inject"
told thermal "temp=[1-9][0-9]{4,5} throttle=2 .*pci=$pci"
vmhost inject clear || fail "inject"
told thermal "throttle=0 .*pci=$pci"
vmhost inject link-down:chip=0 || fail "inject"
told link "port=0 port_state=0 .*pci=$pci"
vmhost inject clear || fail "inject"
told link "port=0 port_state=2 .*pci=$pci"

node_load -s 1000 "/dev/accel/$node" >/tmp/load &
client=$!
vmhost inject page:chip=0 || fail "inject"
told fault ".*pci=$pci"
grep -Eq "^event fault .*pid=$client client=node_load queue=1 code=1 .* va=[1-9]" /tmp/clients || { cat /tmp/clients; fail "no word of the client"; }
! grep -Eq " (pid|client|queue|code|op|tensor|va|detail)=" /tmp/events || { cat /tmp/events; fail "everybody hears of clients"; }
kill -INT $client
wait $client || fail "$(cat /tmp/load)"
[ "$(cut -d ' ' -f 4 /tmp/load)" -ge 1 ] || fail "the client did not lose its queue: $(cat /tmp/load)"
grep -q ' faults=[1-9]' /tmp/events || fail "no fault counted"

# A chip that has to be reset because of a queue: whose it is, for administrators.
vmhost stick-stop 0 || fail "stick-stop"
node_fault "/dev/accel/$node" 1 hang || fail "node_fault"
told reset "reason=a queue does not stop .*pci=$pci .*resets=1"
grep -Eq "^event reset .*pid=[1-9][0-9]* client=node_fault queue=1 uid=0 client_id=[1-9][0-9]* reason=" /tmp/clients || { cat /tmp/clients; fail "no word of who had the chip reset"; }
! grep -Eq " (pid|client|uid|client_id|queue)=" /tmp/events || { cat /tmp/events; fail "everybody hears who had the chip reset"; }
dmesg | grep -Eq "the chip was reset: a queue does not stop, queue 1 of node_fault\[[1-9]" || fail "the log does not name the client"

echo 1 >"$device/reset" || fail "reset"
told reset "reason=function reset .*pci=$pci .*resets=2"
! grep "reason=function reset" /tmp/clients | grep -q " uid=" || fail "a client is named in the administrator's reset"
echo "$pci" >/sys/bus/pci/drivers/txda/unbind || fail "unbind"
told remove "pci=$pci"
[ "$(nl_events dump | grep -c '^device ')" -eq 1 ] || fail "a chip that is not bound is in the dump"
echo "$pci" >/sys/bus/pci/drivers/txda/bind || fail "bind"
told add "pci=$pci"

# Whoever faults all the time does not flood those who listen.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
	echo "$i"
done | xargs -P 4 -n 1 sh -c 'node_fault '"/dev/accel/$(ls "$device/accel")"' 10' || fail "node_fault"
kill $listener $admin
wait $listener $admin 2>/dev/null
echo "$(grep -c '^event fault' /tmp/events) of 301 faults were told"
[ "$(grep -c '^event fault' /tmp/events)" -lt 301 ] || fail "every fault was told"
true
