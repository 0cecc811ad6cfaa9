#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: cpus=parallel chips=1 irq=msix plug=later
# Buffers in memory of another PCI device, behind the same port as the chip: used in place where the kernel has
# peer-to-peer DMA, refused where it has not; taken back at work, and gone with their exporter.
. /rig/guest/lib.sh

# qmp COMMAND ARGUMENTS - of QEMU's monitor.
qmp() {
	vmhost qmp "{\"execute\": \"$1\", \"arguments\": {$2}}"
}

qmp object-add '"qom-type": "memory-backend-memfd", "id": "bar", "size": 4194304, "share": true' || fail "no memory"
# The slot is seen when its function 0 comes.
vmhost add 0 1 || fail "no chip"
qmp device_add '"driver": "ivshmem-plain", "id": "exporter", "bus": "rp0", "addr": "0.0", "multifunction": true, "memdev": "bar"' ||
	fail "no exporter"
wait_for 60 chips_are 1 || fail "the chip does not come"
insmod "/t/module/$(uname -r)/txda_exporter.ko" || fail "insmod txda_exporter"
for device in /sys/bus/pci/drivers/txda_exporter/0000:*; do
	export EXPORTER_DEVICE="${device##*/}"
done
[ -e "$device" ] && [ -e /dev/txda_exporter ] || fail "the exporter is not bound"
load || fail "insmod"
wait_for 30 nodes_are 1 || fail "no node"
for _ in 1 2; do
	ioctl_mem_p2p || fail "ioctl_mem_p2p"
done
unload || fail "rmmod"
# Nobody holds it any more.
wait_for 10 rmmod txda_exporter || fail "rmmod txda_exporter"
