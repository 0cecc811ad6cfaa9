#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: chips=1 irq=msix about=chip
# Firmware that is missing, damaged, of another chip or newer than chip or driver is refused in words; then the chip
# binds with a good one. Its log is in debugfs.
. /rig/guest/lib.sh
pci=$(chip_list)
good=$prefix/lib/firmware/txda/tx8.fw
[ -e $good ] || fail "no $good is installed"
mkdir -p /tmp/firmware/txda
path=/sys/module/firmware_class/parameters/path
old=$(cat $path)
mv $good /tmp/tx8.fw
trap 'printf %s "$old" >$path; cp /tmp/tx8.fw $good' EXIT
printf %s /tmp/firmware >$path

# image NAME - of those that firmware.py makes.
image() {
	cp "/t/firmware-images/$1" /tmp/firmware/txda/tx8.fw
}

# refused WORDS - the chip is not bound, and the kernel's log has WORDS.
refused() {
	dmesg -C
	echo "$pci" >/sys/bus/pci/drivers/txda/bind 2>/dev/null && fail "bound: $1"
	nodes_are 0 || fail "a node: $1"
	dmesg | grep -q "$1" || { dmesg; fail "the log does not say: $1"; }
}

load || fail "insmod"
[ ! -e "/sys/bus/pci/devices/$pci/driver" ] || fail "bound without firmware"
refused 'firmware txda/tx8.fw cannot be loaded (-ENOENT)'
head -c 20 /tmp/tx8.fw >/tmp/firmware/txda/tx8.fw
refused 'firmware txda/tx8.fw: size is 0x14'
image magic
refused 'magic number is 0x12345678'
image header-9
refused 'header version 9, this driver reads 1: the driver is too old'
image family-7
refused 'chip family 7, this is family 8'
image map-1.9
refused 'needs register map 1.9, the chip has 1.'
image map-2.0
refused 'needs register map 2.0, the chip has 1.'
image interface-2.0
refused 'needs driver interface 2.0, this one has 1.'
image carveout-256G
refused 'wants 262144 MiB'
cp /tmp/tx8.fw /tmp/firmware/txda/tx8.fw
printf X | dd of=/tmp/firmware/txda/tx8.fw bs=1 seek=130 conv=notrunc 2>/dev/null
refused 'checksum is'

# A carve-out beyond what the chip reserves is taken off the memory for buffers.
image carveout-64M
echo "$pci" >/sys/bus/pci/drivers/txda/bind || fail "a larger carve-out is refused"
small=$(cat "/sys/bus/pci/devices/$pci/npu_memory_total")
echo "$pci" >/sys/bus/pci/drivers/txda/unbind
cp /tmp/tx8.fw /tmp/firmware/txda/tx8.fw
echo "$pci" >/sys/bus/pci/drivers/txda/bind || fail "good firmware is refused"
large=$(cat "/sys/bus/pci/devices/$pci/npu_memory_total")
[ $((large - small)) -eq $((48 << 20)) ] || fail "$small bytes with a carve-out of 64 MiB, $large with one of 16 MiB"
[ "$(cat "/sys/bus/pci/devices/$pci/fw_version")" = 1.0.0 ] || fail "version $(cat "/sys/bus/pci/devices/$pci/fw_version")"
node_load -s 0 /dev/accel/accel0 || fail "no work"

# What the chip itself says of it, over a reset of the chip; a reset of the function clears its DRAM.
log=/sys/kernel/debug/accel/$pci/firmware_log

# says LEVEL TEXT - as an expression
says() {
	grep -Eq "^\\[ *[0-9]+\\.[0-9]{6}\\] $1: $2\$" "$log"
}

says info 'firmware: state 2, version 0x10000, error 0' || { cat "$log"; fail "the log has no boot"; }
resets=$(cat "/sys/bus/pci/devices/$pci/reset_count")
vmhost trip 0 || fail "trip"
reset_again() {
	[ "$(cat "/sys/bus/pci/devices/$pci/reset_count")" -gt "$resets" ]
}
wait_for 30 reset_again || fail "no reset after a trip"
before=$(wc -l <"$log")
says error 'too hot: all queues are stopped until a chip reset' && says info 'chip reset' || { cat "$log"; fail "the log has no trip"; }
vmhost inject clear || fail "inject"
echo 1 >"/sys/bus/pci/devices/$pci/reset" || fail "reset"
says info 'function reset' || { cat "$log"; fail "the log has no function reset"; }
[ "$(wc -l <"$log")" -lt "$before" ] || { cat "$log"; fail "what a function reset clears is shown"; }
