#!/bin/sh
# SPDX-License-Identifier: MIT
#
# run.sh [OPTION...] [-- COMMAND] - boot a kernel under QEMU with chips of txda-cmodel plugged in, run
# COMMAND (a shell script in one word) in it as root, print what it prints and then the kernel's log
# since then (standard error), and exit with its status. Without COMMAND: a shell.
#
#   -k K        kernel: 6.12, 7.2, any other version that Debian has, or debug     (7.2)
#   -n N        chips                                                             (1)
#   -i IRQ      msix or msi; QEMU 11.1 dies of an unplugged MSI-X chip            (msix)
#   -m SIZE     memory of the guest                                               (1G)
#   -c SIZE     memory of a chip                                                  (4G)
#   -j N        threads that the chips compute with                               (one for each processor)
#   -t DIR      what the guest sees as /t: txda.ko for K, programs in bin/, an installation
#               in sysroot/ that is laid over the root                            (the tree's build)
#   -M PROGRAM  txda-cmodel                                                       (DIR's, or of the tree's build)
#   -b          build the tree first; without it the last build serves, if there is one
#   -s          boot systemd rather than nothing but COMMAND
#   -p          plug no chip in; COMMAND does so with `vmhost add N`
#   -l SECONDS  the machine is killed when it has been up for so long             (120)
#   -C FILE     run the test cases that FILE names instead of COMMAND
#   -a ARGS     more arguments of the kernel, as words
#   -q ARGS     more arguments of QEMU, as words, such as "-trace vfio_user_*"
#   -o DIR      keep the machine's files there: console.log, model.log, events, and what the guest
#               left in /rig/out
#   -v          the whole kernel log
#
# A kernel that dies or hangs before it is through with booting is booted again, twice.
#
# Exit status 124: it took too long, 125: the machine died, 126: it did not start.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"

k=7.2 chips=1 irq=msix mem=1G chip_mem=4G cores='' stage='' model='' build='' mode=fast plug=now limit=120 cases='' qemu_args='' kernel_args='' keep='' verbose=''
while getopts k:n:i:m:c:j:t:M:bspl:C:a:q:o:v option; do
	case $option in
	k) k=$OPTARG ;;
	n) chips=$OPTARG ;;
	i) irq=$OPTARG ;;
	m) mem=$OPTARG ;;
	c) chip_mem=$OPTARG ;;
	j) cores=$OPTARG ;;
	t) stage=$OPTARG ;;
	M) model=$OPTARG ;;
	b) build=1 ;;
	s) mode=systemd ;;
	p) plug=later ;;
	l) limit=$OPTARG ;;
	C) cases=$OPTARG ;;
	a) kernel_args="$kernel_args $OPTARG" ;;
	q) qemu_args=$OPTARG ;;
	o) keep=$OPTARG ;;
	v) verbose=1 ;;
	*)
		sed -n '4,31s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done
shift $((OPTIND - 1))
prepare() {
	sh "$top/tests/vm/prepare.sh" "$@"
}
prepare root
prepare kernel "$k"
prepare supervise
prepare accel "$k"
kernel=$vm/kernel/$k
release=$(cat "$kernel/release")
tree=$vm/tree/tree
if [ -z "$stage" ]; then
	stage=$tree/stage
	if [ -n "$build" ] || [ ! -e "$stage/module/$release/txda.ko" ]; then
		prepare module "$top" tree "$k"
	fi
	[ -z "$build" ] || prepare user "$top" tree
fi
if [ "$chips" -gt 0 ] && [ -z "$model" ] && [ ! -e "$stage/sysroot/usr/bin/txda-cmodel" ] &&
	[ ! -e "$tree/stage/sysroot/usr/bin/txda-cmodel" ]; then
	prepare user "$top" tree
fi

# A directory of its own; sockets have short names only.
run=$(mktemp -d "${TMPDIR:-/tmp}/txda-vm.XXXXXX")
chmod 755 "$run"
# shellcheck disable=SC2317 # reached by the trap
cleanup() {
	if [ -n "$keep" ]; then
		mkdir -p "$keep"
		tar -C "$keep" -x -f "$run/files" 2>/dev/null || true
		cp "$run/console.log" "$run/events" "$run/model.log" "$run/qemu.log" "$keep/" 2>/dev/null || true
	fi
	rm -rf "$run"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir -p "$run/rig/out" "$run/chips"
cp -r "$top/tests/vm/guest" "$top/tests/vm/cases" "$run/rig/"
chmod -R a+rX "$run/rig"
# What is tested, as an image: it outlives a sleep of the machine, as no shared directory does.
of_root "$root/usr/bin/mksquashfs" "$stage" "$run/t.img" -quiet -no-progress -noI -noD -noF -noX -all-root >/dev/null
chmod +x "$run/rig/guest/vmhost"

want=shell
interactive=-i
if [ -n "$cases" ]; then
	cp "$cases" "$run/rig/cases.list"
	want=cases
elif [ $# -gt 0 ]; then
	printf '%s\n' "$*" >"$run/rig/command"
	want="command"
fi
[ $want = shell ] || interactive=
echo "chips=$chips irq=$irq plug=$plug want=$want mode=$mode kernel=$k limit=$limit" >"$run/rig/settings"
# Ten times what a boot takes; the guest says when it is up and has $limit from then on.
boot_limit=180
[ "$k" != debug ] || boot_limit=900

# Archives may follow one another; the guest finds /rig in the second.
(cd "$run" && find rig | of_root "$root/usr/bin/cpio" -o -H newc -R 0:0 --quiet | cat "$kernel/initrd" - >initrd)

# The model server, if there are chips.
set --
if [ "$chips" -gt 0 ]; then
	if [ -z "$model" ]; then
		model=$stage/sysroot/usr/bin/txda-cmodel
		[ -x "$model" ] || model=$tree/stage/sysroot/usr/bin/txda-cmodel
		set -- "$root/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu"
	fi
	[ -x "$model" ] || die "there is no $model"
	set -- -m "$@" "$model" --chips "$chips" --mem "$chip_mem" ${cores:+--cores "$cores"} --socket-dir "$run/chips" --irq "$irq" --
fi
# shellcheck disable=SC2086 # words or none
set -- -d "$run" -n "$chips" -l "$boot_limit" $interactive "$@" --
# shellcheck disable=SC2046 # words
set -- "$@" $(qemu_command)
set -- "$@" -nodefaults -no-user-config -display none -no-reboot -machine q35,memory-backend=m0 -m "$mem" \
	-object "memory-backend-memfd,id=m0,size=$mem,share=on" -smp 2 \
	-global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off
case $(cat "$vm/accel") in
kvm) set -- "$@" -accel kvm -cpu host ;;
# Kernels that find fast string instructions copy and clear memory byte by byte, which is slow where each is emulated.
*) set -- "$@" -accel tcg,thread=multi -cpu max,la57=off,erms=off,fsrm=off,fzrm=off,fsrs=off ;;
esac
append="console=ttyS0 panic=-1 oops=panic no_timer_check log_buf_len=4M printk.devkmsg=on mitigations=off rig=$mode firmware_class.path=/t/firmware"
[ "$mode" = fast ] || append="$append TERM=dumb systemd.getty_auto=0 systemd.show_status=0 systemd.journald.storage=volatile"
# A slow kernel on a busy host takes its clock for a bad one, and a slow one instead.
[ "$k" != debug ] || append="$append tsc=reliable systemd.default_timeout_start_sec=600"
# An emulated processor that the host does not run for half a minute looks stuck to the kernel.
[ "$(cat "$vm/accel")" = kvm ] || append="$append rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60"
append="$append$kernel_args"
if [ $want = shell ]; then
	append="$append loglevel=4"
	set -- "$@" -serial mon:stdio
else
	append="$append loglevel=8"
	set -- "$@" -serial "file:$run/console.log"
fi
set -- "$@" -kernel "$kernel/vmlinuz" -initrd "$run/initrd" -append "$append" \
	-device virtio-rng-pci \
	-drive "file=$vm/root.img,format=raw,if=none,id=root,readonly=on" -device virtio-blk-pci,drive=root \
	-drive "file=$kernel/modules.img,format=raw,if=none,id=kernel,readonly=on" -device virtio-blk-pci,drive=kernel \
	-drive "file=$run/t.img,format=raw,if=none,id=t,readonly=on" -device virtio-blk-pci,drive=t \
	-qmp "unix:$run/qmp.sock" \
	-device virtio-serial-pci \
	-chardev "socket,id=ctl,path=$run/ctl.sock" -device virtserialport,chardev=ctl,name=txda.ctl \
	-chardev "socket,id=out,path=$run/out.sock" -device virtserialport,chardev=out,name=txda.out \
	-chardev "file,id=files,path=$run/files" -device virtserialport,chardev=files,name=txda.files
port=0
while [ $port -lt 8 ]; do
	set -- "$@" -device "pcie-root-port,id=rp$port,chassis=$((port + 1)),slot=$((port + 1)),pref64-reserve=32G"
	port=$((port + 1))
done

# shellcheck disable=SC2086 # words
set -- "$@" $qemu_args

# supervised QEMU-ARGUMENT... - run the machine once.
supervised() {
	if [ $want = cases ]; then
		# QEMU has pages to say about each chip that a case pulls out.
		"$vm/supervise" "$@" 2>"$run/qemu.log"
	else
		"$vm/supervise" "$@"
	fi
}

# failed_boot - the kernel died or hung before it had anything of ours. Emulated processors now and then
# trip over an instruction that another one of them is changing, as kernels do to their own code, and
# kernels wait for a clock that a busy host did not let run.
failed_boot() {
	[ "$(cat "$vm/accel")" != kvm ] && [ -e "$run/console.log" ] || return 1
	case $status in
	124) ! grep -q 'txda-vm: up' "$run/console.log" ;;
	125) ! grep -q -e 'txda-vm: ready' -e 'Modules linked in:.* txda' "$run/console.log" ;;
	*) return 1 ;;
	esac
}

for _ in 1 2 3; do
	status=0
	supervised "$@" || status=$?
	failed_boot || break
	if [ $status -eq 124 ]; then
		say "the kernel hung while it booted: $(tail -n 1 "$run/console.log")"
	else
		say "the kernel died while it booted: $(grep -o -e 'Kernel panic.*' -e 'Oops: .*' "$run/console.log" | head -n 1)"
	fi
done
if [ $want = command ]; then
	{
		echo "---- kernel log"
		if [ -n "$verbose" ]; then
			cat "$run/console.log"
		elif grep -q 'txda-vm: ready' "$run/console.log"; then
			sed '1,/txda-vm: ready/d' "$run/console.log"
		else
			tail -n 60 "$run/console.log"
		fi
		echo "---- exit status $status"
	} >&2
fi
exit "$status"
