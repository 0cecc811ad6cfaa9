#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix
# hwmon: the chip's own readings, in hwmon's units.
. /rig/guest/lib.sh
pci=$(chip_list)
device=/sys/bus/pci/devices/$pci

# reg OFFSET - a register as it is, while no driver has the chip.
reg() {
	read -r bar _ <"$device/resource"
	echo $(($(busybox devmem $((bar + $1)) 32)))
}

echo 1 >"$device/enable"
[ "$(reg 0)" -eq $((0x38585454)) ] || fail "the chip's registers cannot be read: $(reg 0)"
limit_mw=$(reg 0x404) temp_limit=$(reg 0x40c) temp_trip=$(reg 0x410) clock_max=$(reg 0x84)
power=$(reg 0x400) temp=$(reg 0x408) clock=$(reg 0x414)
echo 0 >"$device/enable"

load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
hwmon=$(echo "$device"/hwmon/hwmon*)
[ "$(cat "$hwmon/name")" = txda ] || fail "no sensors in $hwmon"

# is FILE VALUE
is() {
	[ "$(cat "$hwmon/$1")" = "$2" ] || fail "$1 is $(cat "$hwmon/$1"), not $2"
}

# near FILE VALUE - within a third: an idle chip's readings move little, a wrong unit is far off.
near() {
	value=$(cat "$hwmon/$1") || fail "$1"
	[ "$value" -gt $(($2 * 2 / 3)) ] && [ "$value" -lt $(($2 * 4 / 3)) ] || fail "$1 is $value, the register says $2"
}

is power1_label "card slot"
is temp1_label die
is freq1_label core
is temp1_max "$temp_limit"
is temp1_crit "$temp_trip"
near power1_input $((power * 1000))
near power1_average $((power * 1000))
near temp1_input "$temp"
near freq1_input $((clock * 1000))
[ "$(cat "$hwmon/freq1_input")" -le $((clock_max * 1000)) ] || fail "a clock above the highest"

is power1_cap $((limit_mw * 1000))
echo 41000000 >"$hwmon/power1_cap" || fail "power1_cap cannot be set"
is power1_cap 41000000
for bad in 0 -1 99999999999999999999 watts; do
	! echo "$bad" >"$hwmon/power1_cap" 2>/dev/null || fail "power1_cap took $bad"
done
is power1_cap 41000000
# Nor does a reset of the function or of the chip end it.
echo 1 >"$device/reset" || fail "reset"
is power1_cap 41000000
resets=$(cat "$device/reset_count")
vmhost trip 0 || fail "trip"
reset_again() {
	[ "$(cat "$device/reset_count")" -gt "$resets" ]
}
wait_for 30 reset_again || fail "no reset after a trip"
is power1_cap 41000000
vmhost inject clear || fail "inject"
echo $((limit_mw * 1000)) >"$hwmon/power1_cap"

# A chip at work needs more power, a hung one still has its sensors.
idle=$(cat "$hwmon/power1_input")
node_load -s 1000 /dev/accel/accel0 >/tmp/load &
client=$!
more() {
	[ "$(cat "$hwmon/power1_input")" -gt "$idle" ]
}
wait_for 30 more || fail "work takes no power"
kill -INT $client
wait $client || fail "$(cat /tmp/load)"
vmhost liveness-stop 0 || fail "liveness-stop"
timeout 5 cat "$hwmon"/power1_input "$hwmon"/temp1_input "$hwmon"/freq1_input || fail "no sensors of a hung chip"
echo 1 >"$device/reset"

# Hot: throttled, and back.
vmhost inject thermal || fail "inject"
wait_for 30 grep -q thermal "$device/throttle" || fail "throttle says $(cat "$device/throttle")"
[ "$(cat "$hwmon/temp1_input")" -ge "$(cat "$hwmon/temp1_max")" ] || fail "throttled at $(cat "$hwmon/temp1_input")"
vmhost inject clear || fail "inject"
wait_for 30 grep -q none "$device/throttle" || fail "throttle says $(cat "$device/throttle")"

# After removal an open attribute says so.
exec 3<"$hwmon/temp1_input"
echo 1 >"$device/remove"
! cat <&3 2>/dev/null || fail "a sensor of a chip that is gone"
exec 3<&-
echo 1 >/sys/bus/pci/rescan
wait_for 30 nodes_are 1 || fail "no node after a rescan"
