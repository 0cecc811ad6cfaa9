#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix root=full
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
refused=$(count_events --refused)
[ "$refused" = "22 22 22 22" ] || fail "an unknown event, one of ports, one of a task, one that samples: $refused"
sysctl -q kernel.perf_event_paranoid=2
err=$(echo | setpriv --reuid 1000 --regid 1000 --clear-groups "$(command -v count_events)" copy_busy 2>&1) && fail "anybody may count"
case $err in *"ermission denied"*) ;; *) fail "refused otherwise: $err" ;; esac

# Counts that stay open until the end.
mkfifo /tmp/ask /tmp/counts
count_events compute_busy copy_busy dram_read dram_written </tmp/ask >/tmp/counts 2>/tmp/perf.err &
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

# txda-smi's figure and perf's, within two points. perf is read when txda-smi prints, which is later than when it looked: by
# at most a part of the window that is known, and that is smaller in longer windows.
while [ ! -e /tmp/enough ]; do
	TXDA_BACKEND=drm txda-bench model --json --batch 8 --input 1000 --output 1,1 /t/cases/demo-tp1 >>/tmp/load 2>&1
done &
client=$!
computes() {
	grep -q tps /tmp/load
}
wait_for 60 computes || fail "nothing is computed: $(cat /tmp/load)"
now() {
	read -r up _ </proc/uptime
	now=${up%.*}${up#*.}
}
mkfifo /tmp/rows
# agree SECONDS... - the windows that are tried.
agree() {
	for seconds; do
		now && start=$now
		txda-smi query --fields=utilisation_percent --loop $seconds --count 2 >/tmp/rows &
		smi=$!
		exec 6</tmp/rows
		read -r _ <&6 && read -r _ <&6 && now && count || fail "txda-smi ends"
		begin=$now from=$compute
		read -r _ <&6 && read -r percent <&6 && now && count || fail "txda-smi ends"
		exec 6<&-
		wait $smi || fail "txda-smi fails"
		ours=$(((compute - from) / 100000 / (now - begin))) percent=${percent%.*}
		apart=$((((begin - start) + (now - begin - 100 * seconds)) / seconds))
		echo "perf: $ours% busy, txda-smi: $percent%, at most $apart% of the time apart"
		differ=$((ours > percent ? ours - percent : percent - ours))
		[ "$ours" -ge 10 ] && [ $differ -le $((2 + apart)) ] || fail "perf and txda-smi do not agree"
		[ $differ -gt 2 ] || return 0
	done
}
agree 5 20
: >/tmp/enough
wait $client

# A reset of the chip and one of the function clear neither these counts nor the one in sysfs.
count
had="$compute $copy $read $written"
had_us=$(cat "$device/npu_busy_time_us")
[ "$had_us" -gt 0 ] && [ "$had_us" -le $((compute / 1000)) ] || fail "busy for $had_us us, perf counted $compute ns"
not_less() {
	count
	# shellcheck disable=SC2086 # four numbers
	set -- $had
	[ "$compute" -ge "$1" ] && [ "$copy" -ge "$2" ] && [ "$read" -ge "$3" ] && [ "$written" -ge "$4" ] &&
		[ "$(cat "$device/npu_busy_time_us")" -ge "$had_us" ]
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
