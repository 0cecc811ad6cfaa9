#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=fast chips=1 timeout=400
# The chip's counters for perf: what they count, over resets and without a chip, and who may ask.
. /rig/guest/lib.sh
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
pci=$(chip_list)
device=/sys/bus/pci/devices/$pci
pmu=/sys/bus/event_source/devices/txda_0
wait_for 30 test -d $pmu || fail "no PMU"

[ "$(cat $pmu/events/dram_read.unit)" = MiB ] || fail "the unit of dram_read"
[ ! -e $pmu/events/c2c_sent ] || fail "events of C2C traffic on a chip without ports"
refused=$(PYTHONPATH=/rig/guest python3 -c '
from count import perf_event_open
print(*(-perf_event_open(*args) for args in ((99,), (4,), (0, 0, -1), (0, -1, 0, 1000))))')
[ "$refused" = "22 22 22 22" ] || fail "an unknown event, one of ports, one of a task, one that samples: $refused"
sysctl -q kernel.perf_event_paranoid=2
err=$(echo | setpriv --reuid 1000 --regid 1000 --clear-groups python3 /rig/guest/count.py copy_busy 2>&1) && fail "anybody may count"
case $err in *"ermission denied"*) ;; *) fail "refused otherwise: $err" ;; esac

# Counts that stay open until the end.
mkfifo /tmp/ask /tmp/counts
python3 /rig/guest/count.py compute_busy copy_busy dram_read dram_written </tmp/ask >/tmp/counts 2>/tmp/perf.err &
counter=$!
exec 4>/tmp/ask 5</tmp/counts

# count - into compute, copy, read, written
count() {
	echo >&4
	read -r compute copy read written <&5 || fail "no counts: $(cat /tmp/perf.err)"
}

copies() {
	before="$copy $read $written"
	# shellcheck disable=SC2086 # three numbers
	set -- $before
	count
	[ "$copy" -gt "$1" ] && [ "$read" -gt "$2" ] && [ "$written" -gt "$3" ]
}

count
node_load -s 1000 /dev/accel/accel0 >/tmp/load &
client=$!
wait_for 30 copies || fail "copies are not counted: $copy $read $written"
kill -INT $client
wait $client || fail "$(cat /tmp/load)"
[ "$compute" -eq 0 ] || fail "compute time without compute work"

# What people type: each job fills 64 KiB, and copies as much.
events=txda_0/compute_busy/,txda_0/copy_busy/,txda_0/dram_read/,txda_0/dram_written/
LC_ALL=C perf stat -x , -o /tmp/stat -e $events -- node_load -s 2 /dev/accel/accel0 >/tmp/load 2>&1 ||
	fail "perf stat: $(cat /tmp/load /tmp/stat)"
cat /tmp/load /tmp/stat
awk -F , -v jobs="$(sed -n 's/^jobs \([0-9]*\) .*/\1/p' /tmp/load)" '
	{ count[$3 " " $2] = $1 }
	END {
		exit !(jobs > 0 && count["txda_0/compute_busy/ ns"] == 0 && count["txda_0/copy_busy/ ns"] > 0 &&
			count["txda_0/dram_read/ MiB"] >= jobs / 16 * 0.99 &&
			count["txda_0/dram_written/ MiB"] >= jobs / 8 * 0.99)
	}' /tmp/stat || fail "perf stat counts something else"

# Three ways to the same figure: sysfs looks between two readings, txda-smi reads it, and we look at the same moments.
while [ ! -e /tmp/enough ]; do
	TXDA_BACKEND=drm txda-bench --prompt 16 --gen 256 --batch 1 /t/cases/demo-tp1 >/tmp/load 2>&1
done &
client=$!
computes() {
	count
	[ "$compute" -gt 0 ]
}
wait_for 60 computes || fail "compute work is not counted: $(cat /tmp/load)"
by_sysfs() {
	cat "$device/npu_busy_percent"
}
by_smi() {
	txda-smi query --fields=utilisation_percent | sed -n '$s/\..*//p'
}
# agree HOW SECONDS
agree() {
	$1 >/dev/null
	count
	from=$compute begin=$(date +%s%N)
	sleep "$2"
	percent=$($1)
	count
	ours=$(((compute - from) * 100 / ($(date +%s%N) - begin)))
	[ "$ours" -ge 1 ] && [ $((ours - percent)) -le 2 ] && [ $((percent - ours)) -le 2 ]
}
wait_for 30 agree by_sysfs 1 || fail "perf says $ours% busy, npu_busy_percent $percent%"
wait_for 60 agree by_smi 5 || fail "perf says $ours% busy, txda-smi $percent%"
echo "perf: $ours% busy, txda-smi: $percent%"
: >/tmp/enough
wait $client

# A reset of the chip and one of the function take nothing away.
count
had="$compute $copy $read $written"
not_less() {
	count
	# shellcheck disable=SC2086 # four numbers
	set -- $had
	[ "$compute" -ge "$1" ] && [ "$copy" -ge "$2" ] && [ "$read" -ge "$3" ] && [ "$written" -ge "$4" ]
}
resets=$(cat "$device/reset_count")
vmhost trip 0 || fail "trip"
reset_again() {
	[ "$(cat "$device/reset_count")" -gt "$resets" ]
}
wait_for 30 reset_again || fail "no reset after a trip"
not_less || fail "a chip reset lost counts: $had, now $compute $copy $read $written"
vmhost inject clear || fail "inject"
from=$written
node_load -s 2 /dev/accel/accel0 >/tmp/load || fail "$(cat /tmp/load)"
count
# Each job fills 64 KiB, and copies as much.
jobs=$(sed -n 's/^jobs \([0-9]*\) .*/\1/p' /tmp/load)
[ $((written - from)) -ge $((jobs << 17)) ] || fail "$jobs jobs since the reset, $((written - from)) bytes counted"
had="$compute $copy $read $written"
echo 1 >"$device/reset" || fail "reset"
not_less || fail "a function reset lost counts: $had, now $compute $copy $read $written"

# Without a chip counts stand still and hold the module; the next chip goes on.
echo 1 >"$device/remove"
count
had="$compute $copy $read $written"
count
[ "$had" = "$compute $copy $read $written" ] || fail "counts without a chip: $had, then $compute $copy $read $written"
! rmmod txda 2>/dev/null || fail "the module went under an open event"
echo 1 >/sys/bus/pci/rescan
wait_for 30 nodes_are 1 || fail "no node after a rescan"
node_load -s 1000 /dev/accel/accel0 >/tmp/load &
client=$!
wait_for 30 copies || fail "the next chip is not counted: $copy $read $written"
kill -INT $client
wait $client || fail "$(cat /tmp/load)"

exec 4>&- 5<&-
wait $counter || fail "$(cat /tmp/perf.err)"
unload || fail "rmmod"
[ ! -e $pmu ] || fail "a PMU without the module"
load || fail "insmod again"
