#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix about=chip
# A user who causes a chip reset is named to administrators, and is banned after three within a minute; others go on.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
pci=$(chip_list)
device=/sys/bus/pci/devices/$pci
users=/sys/kernel/debug/accel/$pci/users
share_nodes || fail "nodes of group render"
[ "$(cat "$device/user_ban_ms")" -eq 60000 ] || fail "a ban of $(cat "$device/user_ban_ms") ms"
[ "$(stat -c %a "$device/user_ban_ms")" = 644 ] || fail "anybody may set user_ban_ms"
for bad in -1 86400001 never; do
	! echo $bad >"$device/user_ban_ms" 2>/dev/null || fail "a ban of $bad ms"
done
# A machine under emulation takes its time.
echo 600000 >"$device/user_ban_ms" || fail "user_ban_ms"

# Other users get at the node by group render, since udev sets its permissions again after each reset.
try() {
	setpriv --groups=render ioctl_ban "$1" || fail "ioctl_ban $1"
}

nl_events listen 1000 clients >/tmp/clients &
admin=$!
setpriv --reuid=tester --clear-groups nl_events listen 1000 events >/tmp/events &
listener=$!
txda-smi events >/tmp/smi 2>&1 &
smi=$!
for heard in events clients; do
	wait_for 30 grep -q ready /tmp/$heard || fail "nobody listens to $heard"
done

try ban
# The ban outlives the process, its files and a reset of the function.
grep -E 'user 12345: 0 vms, 0 compute queues, 0 copy queues, 0 shared queues, 0 buffers, 0 page tables, 3 resets, banned for [1-9][0-9]* ms$' "$users" || fail "users: $(cat "$users")"
! grep -q 'user 12348:.*banned' "$users" || fail "users: $(cat "$users")"
named='pid=[1-9][0-9]* client=ioctl_ban queue=[1-9][0-9]* uid=12345 client_id=[1-9][0-9]* reason=a queue does not stop'
last() {
	[ "$(grep -Ec "^event reset .*$named .*resets=[123]\$" /tmp/clients)" -eq 3 ] && [ "$(grep -c '^event reset .* resets=3$' /tmp/events)" -eq 1 ]
}
wait_for 30 last || fail "not all resets were told: $(cat /tmp/clients /tmp/events)"
[ "$(grep -Ec "^event reset .*$named banned_ms=600000" /tmp/clients)" -eq 1 ] || fail "no word of the ban: $(cat /tmp/clients)"
grep -q '^event reset .*reason=a queue does not stop' /tmp/events || fail "everybody hears too little: $(cat /tmp/events)"
! grep -Eq ' (pid|client|queue|uid|client_id|banned_ms)=' /tmp/events || fail "everybody hears of clients: $(cat /tmp/events)"
wait_for 30 grep -Eq ' reset .* by ioctl_ban [1-9][0-9]* of user 12345, banned for 600 s' /tmp/smi || fail "txda-smi events: $(cat /tmp/smi)"
dmesg | grep -Eq "the chip was reset: a queue does not stop, queue [1-9][0-9]* of ioctl_ban\[[1-9]" || fail "the log does not name the client"
dmesg | grep -q "user 12345 is banned for 600000 ms" || fail "the log does not tell of the ban"
echo 1 >"$device/reset" || fail "reset"
wait_for 30 grep -q 'reason=function reset' /tmp/clients || fail "the function's reset was not told: $(cat /tmp/clients)"
! grep 'reason=function reset' /tmp/clients | grep -q ' uid=' || fail "somebody is blamed for the administrator's reset"
grep -q 'user 12345:.* banned for' "$users" || fail "the ban is gone with a reset: $(cat "$users")"

try ban-all
grep -q 'user 12346:.* 4 resets, banned for [1-9][0-9]* ms, with all files' "$users" || fail "users: $(cat "$users")"
try ban-doubt
[ "$(grep -c '^event reset .* uid=12347 ' /tmp/clients)" -eq 3 ] || fail "who was named: $(cat /tmp/clients)"

# An administrator ends them; a short one ends by itself.
echo 0 >"$device/user_ban_ms"
! grep -q banned "$users" || fail "users: $(cat "$users")"
try ban-ends
kill $admin $listener $smi
wait $admin $listener $smi 2>/dev/null
true
