#!/bin/sh
# SPDX-License-Identifier: MIT
# vm:
# Attributes of the PCI device, as docs/sysfs.md has them.
. /rig/guest/lib.sh
load job_timeout_ms=1500 || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
device=/sys/bus/pci/devices/$(chip_list | head -n 1)
other=/sys/bus/pci/devices/$(chip_list | tail -n 1)

# like FILE EXPRESSION
like() {
	grep -Eqx "$2" "$device/$1" || fail "$1 is $(cat "$device/$1")"
	[ "$(wc -l <"$device/$1")" -eq 1 ] || fail "$1 is not one line"
}

like serial '[[:graph:]]{1,16}'
like chip_name '.*[Mm]odel.*'
like card '[0-9a-f]{16}'
like card_index 0
like card_chips 2
like fw_version '[0-9]+\.[0-9]+\.[0-9]+'
like state up
like reset_count 0
like ecc_corrected '[0-9]+'
like ecc_uncorrected 0
like throttle none
like job_timeout_ms 1500
like npu_busy_time_us '[0-9]+'
like npu_memory_total '[0-9]+'
like npu_memory_utilization '[0-9]+'
like c2c/port0_state up
like c2c/port0_speed '[1-9][0-9]*'
like c2c/port0_errors 0
[ ! -e "$device/c2c/port1_state" ] || fail "two chips need no second port"
[ "$(cat "$device/serial")" != "$(cat "$other/serial")" ] || fail "two chips with one serial number"
[ "$(cat "$device/card")" = "$(cat "$other/card")" ] || fail "one card has two serial numbers"
[ "$(cat "$device/c2c/port0_peer")" = "$(cat "$other/card"):1:0" ] || fail "peer $(cat "$device/c2c/port0_peer")"
[ "$(cat "$other/c2c/port0_peer")" = "$(cat "$device/card"):0:0" ] || fail "peer $(cat "$other/c2c/port0_peer")"

# The limit for jobs.
echo 2500 >"$device/job_timeout_ms" || fail "job_timeout_ms"
like job_timeout_ms 2500
[ "$(cat /sys/module/txda/parameters/job_timeout_ms)" = 1500 ] || fail "module parameter"
for bad in 0 -1 600001 soon ''; do
	! echo "$bad" >"$device/job_timeout_ms" 2>/dev/null || fail "job_timeout_ms took '$bad'"
done
like job_timeout_ms 2500
[ "$(stat -c %a "$device/job_timeout_ms")" = 644 ] || fail "job_timeout_ms may be set by anybody"

# Memory in use.
idle=$(cat "$device/npu_memory_utilization")
node=$(ls "$device/accel")
node_load -s 1000 "/dev/accel/$node" >/tmp/load &
client=$!
used() {
	[ "$(cat "$device/npu_memory_utilization")" -ge $((idle + (1 << 20))) ]
}
wait_for 30 used || fail "$(cat "$device/npu_memory_utilization") bytes in use by a load, $idle without"
kill -INT $client
wait $client || fail "$(cat /tmp/load)"
back() {
	[ "$(cat "$device/npu_memory_utilization")" -eq "$idle" ]
}
wait_for 30 back || fail "$(cat "$device/npu_memory_utilization") bytes in use, before it were $idle"

# Counters and links follow the chip.
before=$(cat "$device/ecc_corrected")
vmhost inject ecc-corrected:chip=0 || fail "inject"
more() {
	[ "$(cat "$device/ecc_corrected")" -gt "$before" ]
}
node_load -s 1 "/dev/accel/$node" || fail "no work"
wait_for 30 more || fail "no memory error counted"
# Nor does a reset end the count, whoever counted last.
errors=$(cat "$device/ecc_corrected")
resets=$(cat "$device/reset_count")
vmhost trip 0 || fail "trip"
reset_again() {
	[ "$(cat "$device/reset_count")" -gt "$resets" ]
}
wait_for 30 reset_again || fail "no reset after a trip"
[ "$(cat "$device/ecc_corrected")" = "$errors" ] ||
	fail "$errors memory errors before a reset, $(cat "$device/ecc_corrected") after it"
vmhost inject link-down:chip=0 || fail "inject"
wait_for 30 grep -q down "$device/c2c/port0_state" || fail "the link is $(cat "$device/c2c/port0_state")"
wait_for 30 grep -qx 1 "$device/c2c/port0_errors" || fail "$(cat "$device/c2c/port0_errors") errors of the link"
vmhost inject clear || fail "inject"
wait_for 30 grep -q up "$device/c2c/port0_state" || fail "the link is $(cat "$device/c2c/port0_state")"
echo 1 >"$device/reset" || fail "reset"
like reset_count 2
like c2c/port0_errors 1
like ecc_corrected "$errors"
like state up

# Nothing waits for a hung chip.
vmhost liveness-stop 0 || fail "liveness-stop"
for file in "$device"/* "$device"/c2c/*; do
	case ${file##*/} in
	config | resource* | rom | uevent | vpd) continue ;;
	esac
	[ ! -f "$file" ] || [ ! -r "$file" ] || timeout 5 cat "$file" >/dev/null 2>&1
	[ $? -ne 124 ] || fail "${file##*/} waits for a hung chip"
done
echo 1 >"$device/reset" || fail "reset"

# In the middle of a reset of the function nobody reads a register. Nothing here starts a program, which takes its time.
# Which reset it is, the writer says: the driver's counter changes while the function is still down.
sensor=$(echo "$device"/hwmon/hwmon*/temp1_input)
echo 0 >/tmp/reset-number
(
	looked=0 broken=0
	while [ ! -e /tmp/resets-end ]; do
		read -r reset </tmp/reset-number || continue
		read -r before <"$device/state" || break
		[ "$before" = down ] || continue
		looked=$((looked + 1))
		read -r _ <"$sensor" || continue
		read -r after <"$device/state"
		read -r now </tmp/reset-number || continue
		[ "$after $now" != "down $reset" ] || broken=$((broken + 1))
	done 2>/dev/null
	echo "$looked $broken" >/tmp/looks
) &
reader=$!
i=0
while [ $i -lt 5 ]; do
	i=$((i + 1))
	echo $i >/tmp/reset-number
	echo 1 >"$device/reset" || fail "reset"
done
touch /tmp/resets-end
wait $reader
rm /tmp/resets-end /tmp/reset-number
read -r looked broken </tmp/looks
echo "looked $looked times during $i resets, of that answered $broken"
[ "$looked" -gt 0 ] || fail "nobody looked during a reset"
[ "$broken" -eq 0 ] || fail "a register was read during a reset"
