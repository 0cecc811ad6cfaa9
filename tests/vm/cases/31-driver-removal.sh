#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: mode=fast chips=2 irq=msi timeout=1800
# 200 chips pulled out at work, with open files and live mappings, through the hot-plug slot; each new one works.
. /rig/guest/lib.sh
load || fail "insmod"
wait_for 10 nodes_are 2 || fail "nodes"

open_files() {
	cut -f 1 /proc/sys/fs/file-nr
}

kernel_memory() {
	echo 3 >/proc/sys/vm/drop_caches
	awk '/^(SUnreclaim|VmallocUsed|Percpu|KernelStack):/ { sum += $2 } END { print sum }' /proc/meminfo
}

# The nodes' names change, as clients may still hold the old ones.
node_of_new() {
	node=$(ls -t /dev/accel | grep '^accel[0-9]*$' | head -n 1)
}

chip0_node() {
	for device in /sys/bus/pci/devices/*; do
		[ "$(cat "$device/card_index" 2>/dev/null)" = 0 ] && ls "$device/accel" && return
	done
	return 1
}

cycle() {
	wait_for 20 chip0_node >/dev/null || fail "no chip in cycle $1"
	node=$(chip0_node)
	mkfifo /tmp/end
	node_load -k -s 1000 "/dev/accel/$node" </tmp/end >/tmp/first 2>&1 &
	first=$!
	node_load -s 1000 "/dev/accel/$node" >/tmp/second 2>&1 &
	second=$!
	exec 4>/tmp/end
	# Now at work, now at its beginning.
	case $(($1 % 4)) in
	0) ;;
	*) sleep 0.0$(($1 % 10)) ;;
	esac
	unplug 0 || fail "device_del in cycle $1"
	wait_for 20 chips_are 1 || fail "the chip stays in cycle $1"
	wait $second || { cat /tmp/second; fail "second client, cycle $1"; }
	wait_for 20 grep -q gone /tmp/first || { cat /tmp/first; fail "the first client does not see it, cycle $1"; }
	# A file of the old chip is still open when the new one comes.
	plug 0 || fail "device_add in cycle $1"
	exec 4>&-
	wait $first || { cat /tmp/first; fail "first client, cycle $1"; }
	grep -q 'gone 1' /tmp/first || { cat /tmp/first; fail "the first client saw no removal, cycle $1"; }
	rm /tmp/end
}

node_load -s 2000 "/dev/accel/$(ls "/sys/bus/pci/devices/$(chip_list | tail -n 1)/accel")" >/tmp/other 2>&1 &
other=$!
for i in 1 2 3 4 5 6 7 8 9 10; do
	cycle $i
done
before=$(kernel_memory)
files=$(open_files)
while [ $i -lt 200 ]; do
	i=$((i + 1))
	cycle $i
done
after=$(kernel_memory)
echo "kernel memory: $before KiB, then $after KiB; open files: $files, then $(open_files)"
[ "$after" -lt $((before + 4096)) ] || fail "kernel memory grew from $before to $after KiB"
[ "$(open_files)" -lt $((files + 50)) ] || fail "open files grew from $files to $(open_files)"
[ "$(node_count)" -eq 2 ] || fail "$(node_count) nodes"
[ "$(grep -c txda /proc/interrupts)" -le 2 ] || fail "interrupts are left"
kill -INT $other
wait $other || { cat /tmp/other; fail "the other chip's client"; }
cat /tmp/other
read -r word jobs word lost word gone </tmp/other
[ "$lost" -eq 0 ] && [ "$gone" -eq 0 ] || fail "the other chip lost work"
node_load -s 1 "/dev/accel/$(chip0_node)" || fail "no work after all"
