#!/bin/sh
# SPDX-License-Identifier: MIT
#
# run.sh [OPTION...] [-- COMMAND] - boot a kernel under QEMU with chips of txda-cmodel plugged in, run
# COMMAND (a shell script in one word) in it as root, print what it prints and then the kernel's log
# since then (standard error), and exit with its status. Without COMMAND: a shell.
#
#   -k K        kernel: 6.12, 7.2, any other version that Debian has, newest, or debug (newest)
#   -n N        chips                                                             (1)
#   -i IRQ      msix or msi; QEMU 11.1 dies of an unplugged MSI-X chip            (msix)
#   -m SIZE     memory of the guest                                               (1G)
#   -c SIZE     memory of a chip                                                  (4G)
#   -j N        threads that the chips compute with                               (one for each processor)
#   -R ROOT     root file system: base, full, or a file                           (base)
#   -t DIR      what the guest sees as /t: modules in module/RELEASE/, programs in bin/, an installation
#               in sysroot/ that is laid over the root                            (the tree's build)
#   -M PROGRAM  txda-cmodel                                                       (the tree's)
#   -b          build the tree first; without it the last build serves, if there is one
#   -s          boot systemd rather than nothing but COMMAND
#   -p          plug no chip in; COMMAND does so with `vmhost add N`
#   -P          without KVM: a thread for each emulated processor, so that they race with each other. By default one
#               thread emulates all of them in turn.
#   -l SECONDS  the machine is killed when it has been up for so long             (300)
#   -C FILE     run the test cases that FILE names instead of COMMAND
#   -a ARGS     more arguments of the kernel, as words
#   -q ARGS     more arguments of QEMU, as words, such as "-trace vfio_user_*"
#   -o DIR      keep the machine's files there: console.log, model.log, events, and what the guest
#               left in /rig/out
#   -v          the whole kernel log
#
# Exit status 124: it took too long, 125: the machine died, 126: it did not start.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"

k=newest chips=1 irq=msix mem=1G chip_mem=4G cores='' root=base stage='' model='' build='' mode=fast plug=now limit=300 cases=''
qemu_args='' kernel_args='' keep='' verbose='' threads=single
while getopts k:n:i:m:c:j:R:t:M:bspPl:C:a:q:o:v option; do
	case $option in
	k) k=$OPTARG ;;
	n) chips=$OPTARG ;;
	i) irq=$OPTARG ;;
	m) mem=$OPTARG ;;
	c) chip_mem=$OPTARG ;;
	j) cores=$OPTARG ;;
	R) root=$OPTARG ;;
	t) stage=$OPTARG ;;
	M) model=$OPTARG ;;
	b) build=1 ;;
	s) mode=systemd ;;
	p) plug=later ;;
	P) threads=multi ;;
	l) limit=$OPTARG ;;
	C) cases=$OPTARG ;;
	a) kernel_args="$kernel_args $OPTARG" ;;
	q) qemu_args=$OPTARG ;;
	o) keep=$OPTARG ;;
	v) verbose=1 ;;
	*)
		sed -n '4,32s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done
shift $((OPTIND - 1))
prepare() {
	sh "$top/tests/vm/prepare.sh" "$@"
}
# The initramfs takes its shell from it.
prepare root base
case $root in
*/*) ;;
*)
	prepare root "$root"
	root=$vm/root-$root.img
	;;
esac
prepare qemu
prepare kernel "$k"
prepare accel "$k"
prepare supervise
kernel=$vm/kernel/$k
if [ -z "$stage" ] && { [ -n "$build" ] || ! grep -qsxF "$(cat "$kernel/release")" "$vm/stage.kernels"; }; then
	prepare stage none "$k"
fi
: "${model:=$B/check/bin/txda-cmodel}"
accel=$(cat "$vm/accel")

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
chmod +x "$run/rig/guest/vmhost"
# What is tested, as an image: it outlives a sleep of the machine, as no shared directory does.
image=$vm/stage.img
if [ -n "$stage" ]; then
	image=$run/stage.img
	image "$stage" "$image"
fi

want=shell interactive=-i serial=mon:stdio loglevel=4
if [ -n "$cases" ]; then
	cp "$cases" "$run/rig/cases.list"
	want=cases
elif [ $# -gt 0 ]; then
	printf '%s\n' "$*" >"$run/rig/command"
	want="command"
fi
[ $want = shell ] || interactive='' serial=file:$run/console.log loglevel=8
echo "chips=$chips irq=$irq plug=$plug want=$want mode=$mode kernel=$k limit=$limit" >"$run/rig/settings"
# Many times what a boot takes; the guest says when it is up and has $limit from then on.
boot_limit=300
[ "$k" != debug ] || boot_limit=900

# Archives may follow one another; the guest finds /rig in the second.
(cd "$run" && find rig | cpio -o -H newc -R 0:0 --quiet | cat "$kernel/initrd" - >initrd)

append="console=ttyS0 panic=-1 oops=panic log_buf_len=4M printk.devkmsg=on mitigations=off firmware_class.path=/t/firmware rig=$mode loglevel=$loglevel"
[ "$mode" = fast ] || append="$append TERM=dumb systemd.getty_auto=0 systemd.show_status=0 systemd.journald.storage=volatile"
[ "$k" != debug ] || append="$append systemd.default_timeout_start_sec=600"
set --
[ "$chips" -eq 0 ] || set -- -m "$model" --chips "$chips" --mem "$chip_mem" ${cores:+--cores "$cores"} \
	--socket-dir "$run/chips" --irq "$irq" --
# shellcheck disable=SC2086 # words or none
set -- -d "$run" -n "$chips" -l "$boot_limit" $interactive "$@" -- \
	"$vm/qemu" -nodefaults -no-user-config -display none -no-reboot -machine q35,memory-backend=m0 -m "$mem" \
	-object "memory-backend-memfd,id=m0,size=$mem,share=on" -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off
if [ "$accel" = kvm ]; then
	set -- "$@" -accel kvm -cpu host -smp 2
else
	# Kernels that find fast string instructions copy and clear memory byte by byte, which is slow where each is emulated.
	set -- "$@" -accel "tcg,thread=$threads" -cpu max,la57=off,erms=off,fsrm=off,fzrm=off,fsrs=off -smp 2
	# On a busy host the kernel's checks of its timer and of the TSC fail by chance: no check, and no TSC.
	append="$append no_timer_check tsc=unstable"
	# A busy host may not run an emulated processor for half a minute, which is no lockup.
	append="$append watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=300"
fi
set -- "$@" -kernel "$kernel/vmlinuz" -initrd "$run/initrd" -append "$append$kernel_args" -serial "$serial" -device virtio-rng-pci \
	-qmp "unix:$run/qmp.sock" -device virtio-serial-pci \
	-chardev "socket,id=ctl,path=$run/ctl.sock" -device virtserialport,chardev=ctl,name=txda.ctl \
	-chardev "socket,id=out,path=$run/out.sock" -device virtserialport,chardev=out,name=txda.out \
	-chardev "file,id=files,path=$run/files" -device virtserialport,chardev=files,name=txda.files
for disk in "$root" "$kernel/modules.img" "$image"; do
	set -- "$@" -drive "file=$disk,format=raw,if=virtio,readonly=on"
done
for port in 0 1 2 3 4 5 6 7; do
	set -- "$@" -device "pcie-root-port,id=rp$port,chassis=$((port + 1)),slot=$((port + 1)),pref64-reserve=32G"
done
# shellcheck disable=SC2086 # words
set -- "$@" $qemu_args

status=0
if [ $want = cases ]; then
	# QEMU has pages to say about each chip that a case pulls out.
	"$vm/supervise" "$@" 2>"$run/qemu.log" || status=$?
else
	"$vm/supervise" "$@" || status=$?
fi
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
