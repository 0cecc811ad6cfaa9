#!/bin/sh
# SPDX-License-Identifier: MIT
# vm: root=full about=user
# Containers get the chips that they were given by name, and no others; what podman knows of the chips follows them
# as they come and go. A container without a chip reaches the host's daemon.
. /rig/guest/lib.sh
spec=/run/cdi/txda.com-chip.json
udev_start || fail "udev does not start"
load || fail "insmod"
wait_for 30 nodes_are 2 || fail "nodes"
udevadm settle
cat $spec || fail "udev's rule wrote no specification"
[ "$(stat -c %a $spec)" = 644 ] || fail "$spec: $(ls -l $spec)"

# Runtimes look there; the tree is installed with another prefix.
[ -e /etc/cdi/txda.com-daemon.json ] || { mkdir -p /etc/cdi && cp /usr/local/etc/cdi/*.json /etc/cdi/; }

# What runs in the containers, and the libraries that it needs.
root=/tmp/container
mkdir -p $root/usr/bin $root/tmp $root/dev $root/proc $root/sys $root/run/txda
ln -s usr/bin $root/bin
for program in busybox node_info lib_client txda-smi txdactl; do
	path=$(command -v $program) || fail "there is no $program"
	cp "$path" $root/usr/bin/
	ldd "$path" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-[^ ]*\).*/\1/p'
done >/tmp/libraries
sort -u /tmp/libraries | while read -r library; do
	mkdir -p "$root/${library%/*}"
	cp -L "$library" "$root$library"
done
for applet in sh ls mknod cat touch; do
	ln -s busybox $root/usr/bin/$applet
done
mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup || fail "no cgroups"

# container OPTION... COMMAND
container() {
	podman --root /tmp/podman --runroot /run/podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend none \
		run --rm --network none --log-driver none "$@"
}

node_of() {
	echo "/dev/accel/$(ls "/sys/bus/pci/devices/$1/accel")"
}

first=$(chip_list | head -n 1)
second=$(chip_list | tail -n 1)
node=$(node_of "$first")
other=$(node_of "$second")
txda-cdi list | tee /tmp/list
[ "$(grep -c "=$first $node\$" /tmp/list)" -eq 1 ] || fail "no name by PCI address"
index=$(sed -n "s,^txda.com/chip=\([0-9]\{1\,2\}\) $node\$,\1,p" /tmp/list)
[ -n "$index" ] || fail "no name by index"

serial=$(cat "/sys/bus/pci/devices/$second/serial")
grep -q "=$serial $other\$" /tmp/list || fail "no name by serial number"

# One chip: the tools see one, its node opens, work is done on it; without root, too.
container --user 1000:1000 --device "txda.com/chip=$index" --rootfs $root \
	sh -c "txda-smi && ls -l /dev/accel && node_info $node && TXDA_BACKEND=drm lib_client load 1" >/tmp/one 2>&1 || {
	cat /tmp/one
	fail "no work on a chip in a container"
}
cat /tmp/one
grep -q "$first" /tmp/one || fail "the chip is not seen"
! grep -q "$second" /tmp/one || fail "a chip is seen that was not given"
[ "$(grep -c 'accel[0-9]*$' /tmp/one)" -eq 1 ] || fail "another node"

# The other one is not there, and a node that somebody makes for it is of no use.
major=$((0x$(stat -c %t "$other")))
minor=$((0x$(stat -c %T "$other")))
container --cap-add MKNOD --device "txda.com/chip=$index" --rootfs $root \
	sh -c "node_info $node && mknod /tmp/made c $major $minor && ls -l /tmp/made && ! node_info /tmp/made && ! node_info $other" \
	>/tmp/made 2>&1 || {
	cat /tmp/made
	fail "a chip that was not given can be used"
}
cat /tmp/made
grep -q 'Operation not permitted' /tmp/made || fail "it fails for another reason"

# By the other names.
for name in "$serial" "$second"; do
	container --device "txda.com/chip=$name" --rootfs $root node_info "$other" >/tmp/info || fail "no chip by name $name"
done
container --device txda.com/chip=all --rootfs $root sh -c "node_info $node && node_info $other" >/tmp/info || fail "not all chips"
# The library comes along, to be read.
library=$(sed -n 's/.*"hostPath":[[:space:]]*"\(.*\)".*/\1/p' $spec)
[ -e "$library" ] || fail "no library in $spec"
mkdir -p "$root/${library%/*}"
container --device txda.com/chip=all --rootfs $root cat "$library" | cmp - "$library" || fail "not the host's library"
! container --device txda.com/chip=all --rootfs $root touch "$library" || fail "the library can be written"

# The daemon's socket, without a chip. Nobody loads its model.
txdad --model demo=/t/cases/demo-tp1 --load demand 2>/tmp/log &
daemon=$!
wait_for 60 txdactl models || { cat /tmp/log; fail "the daemon is not there"; }
container --device txda.com/daemon=socket --rootfs $root sh -c "txdactl models && ! ls /dev/accel" >/tmp/models 2>&1 ||
	{ cat /tmp/models; fail "no daemon in a container"; }
grep -q '^demo ' /tmp/models || fail "the daemon's models: $(cat /tmp/models)"
kill $daemon
wait $daemon || { cat /tmp/log; fail "the daemon did not end well"; }

# A chip goes: it is given to nobody, nor is the other one in its place.
unplug 0 || fail "device_del"
wait_for 60 chips_are 1 || fail "the chip stays"
wait_for 30 nodes_are 1 || fail "the node stays"
udevadm settle
left=$(chip_list)
[ "$left" = "$second" ] || first=$second
cat $spec
[ "$(grep -c "\"$left\"" $spec)" -eq 1 ] || fail "the chip that is left has no name"
! grep -q "\"$first\"" $spec || fail "the chip that is gone still has one"
! container --device "txda.com/chip=$first" --rootfs $root txda-smi || fail "a chip that is gone was given"
container --device "txda.com/chip=$left" --rootfs $root node_info "$(node_of "$left")" >/tmp/info || fail "no chip after all"
plug 0 || fail "device_add"
wait_for 30 nodes_are 2 || fail "no node"
udevadm settle
[ "$(txda-cdi list | grep -c accel)" -eq 6 ] || fail "$(txda-cdi list)"
txda-cdi generate >/tmp/now && cmp /tmp/now $spec || fail "the specification is not what the machine is"

# Without a chip there is no specification.
unload || fail "rmmod"
wait_for 30 nodes_are 0 || fail "nodes are left"
udevadm settle
[ ! -e $spec ] || fail "a specification without chips: $(cat $spec)"
[ -z "$(ls -A /run/cdi)" ] || fail "left behind: $(ls -A /run/cdi)"
