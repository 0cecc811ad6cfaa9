#!/bin/sh
# SPDX-License-Identifier: MIT
#
# prepare.sh WHAT [ARGUMENT...] - make what machines are made of, unless it is there; see rig.sh for
# what lands where. Exit status 77: this machine cannot.
#
#   root NAME [PACKAGE...]     the guests' root file system NAME, with mmdebstrap: base, full or dkms, see tests/vm/packages
#   qemu                       QEMU
#   accel K                    find out whether KVM works here, with kernel K
#   kernel K                   Debian's newest kernel whose version begins with K, or of all: "newest"; "debug": see
#                              debug-kernel.sh
#   stage LEVEL K...           what is tested: modules for kernels K, the user space of build/check, and for LEVEL check
#                              or full what models have to say, see reference.sh
#   supervise                  the program that runs a machine
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
# shellcheck source=scripts/debian.sh
. "$top/scripts/debian.sh"
suite=trixie

make_root() {
	[ "$(uname -m)" = x86_64 ] || unable "guests are x86-64 machines, and this one is not"
	name=$1 out=$vm/root-$1
	shift
	packages=$({
		awk -v name="$name" '$2 == "base" || $2 == name { print $1 }' "$top/tests/vm/packages"
		printf '%s\n' "$@"
	} | paste -s -d , | sed 's/,$//')
	[ "$(cat "$out.complete" 2>/dev/null)" != "$suite $packages" ] || return 0
	sh "$top/scripts/deps.sh" vm >&2
	mirror=$(debian_mirror) || unable "apt's configuration names no Debian mirror, so no guest can be made"
	say "making the guests' root file system $name ($suite)"
	apt_proxies >"$out.proxies"
	# Writing back each file of each package is for machines that keep them.
	# shellcheck disable=SC2016 # $1 is for the hook
	if ! mmdebstrap --variant=minbase --format=tar --aptopt="$out.proxies" --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --include="$packages" \
		--customize-hook='chroot "$1" useradd --create-home tester' \
		--customize-hook='rm -f "$1/etc/apt/sources.list" "$1/etc/hostname" "$1/etc/resolv.conf"' \
		$suite "$out.new.tar" "deb [signed-by=$debian_keyring] $mirror $suite main" >"$out.log" 2>&1; then
		tail -n 20 "$out.log" >&2
		unable "mmdebstrap cannot make the root file system, all of it is in $out.log"
	fi
	rm -f "$out.new.img"
	mksquashfs - "$out.new.img" -tar -quiet -no-progress -no-xattrs -noI -noD -noF -noX <"$out.new.tar" >/dev/null 2>&1
	tar -tf "$out.new.tar" >"$out.list"
	mv "$out.new.tar" "$out.tar"
	mv "$out.new.img" "$out.img"
	echo "$suite $packages" >"$out.complete"
}

# QEMU and its libraries are unpacked, which takes no root file system of theirs.
make_qemu() {
	[ ! -e "$vm/qemu" ] || return 0
	{
		echo '#!/bin/sh'
		if host_qemu_serves; then
			echo 'exec qemu-system-x86_64 "$@"'
		else
			fetch_qemu
			cat <<-END
				usr='$vm/qemu.root/usr'
				export QEMU_MODULE_DIR="\$usr/lib/x86_64-linux-gnu/qemu"
				exec "\$usr/lib64/ld-linux-x86-64.so.2" --argv0 qemu-system-x86_64 --library-path "\$usr/lib/x86_64-linux-gnu" \\
					"\$usr/bin/qemu-system-x86_64" -L "\$usr/share/qemu" -L "\$usr/share/seabios" "\$@"
			END
		fi
	} >"$vm/qemu.new"
	chmod +x "$vm/qemu.new"
	mv "$vm/qemu.new" "$vm/qemu"
}

fetch_qemu() {
	say "fetching QEMU from $suite-backports"
	debian_apt_setup "$vm/qemu.apt" $suite $suite-backports || unable "the mirror has no $suite"
	debian_apt "$vm/qemu.apt" apt-get install --download-only -y --no-install-recommends -t $suite-backports \
		qemu-system-x86 >"$vm/qemu.log" 2>&1 || unable "QEMU cannot be fetched, see $vm/qemu.log"
	for deb in "$vm/qemu.apt/archives"/*.deb; do
		dpkg -x "$deb" "$vm/qemu.root"
	done
	rm -rf "$vm/qemu.apt" "$vm/qemu.root/usr/share/doc"
}

# A device file says little: inside of some virtual machines guests of KVM do not run, or not far.
probe_accel() {
	[ ! -e "$vm/accel" ] || return 0
	accel=tcg
	if [ -w /dev/kvm ]; then
		timeout -k 1 5 "$vm/qemu" -nodefaults -no-user-config -display none -no-reboot -machine q35 -m 512M -accel kvm -cpu host \
			-kernel "$vm/kernel/$1/vmlinuz" -append "console=ttyS0 panic=-1" -serial stdio </dev/null >"$vm/accel.log" 2>&1 || true
		! grep -q 'Kernel panic.*root fs' "$vm/accel.log" || accel=kvm
	fi
	echo $accel >"$vm/accel"
}

# depmod_tree TREE RELEASE
depmod_tree() {
	ln -s usr/lib "$1/lib"
	depmod -b "$1" "$2"
	rm "$1/lib"
}

# keep_modules TREE RELEASE PATTERNS - of the kernel's modules keep those that PATTERNS name and
# what these depend on, unpacked.
keep_modules() {
	modules=$1/usr/lib/modules/$2
	depmod_tree "$1" "$2"
	sed -n 's/^\([^#[:space:]][^[:space:]]*\).*/\1/p' "$3" >"$1/patterns"
	awk '
	NR == FNR { pattern[++n] = $1; next }
	{
		sub(/:$/, "", $1)
		for (i = 1; i <= n; i++)
			if ($1 ~ pattern[i])
				for (j = 1; j <= NF; j++)
					want[$j] = 1
	}
	END { for (m in want) print m }' "$1/patterns" "$modules/modules.dep" >"$1/keep"
	while read -r module; do
		mkdir -p "$modules/kept/${module%/*}"
		case $module in
		*.xz) xz -d -c "$modules/$module" >"$modules/kept/${module%.xz}" ;;
		*) cp "$modules/$module" "$modules/kept/$module" ;;
		esac
	done <"$1/keep"
	rm -rf "$modules/kernel" "$1/keep" "$1/patterns"
	mv "$modules/kept/kernel" "$modules/kernel"
	rmdir "$modules/kept"
	depmod_tree "$1" "$2"
}

# load_order DIR NAME... - paths of the modules NAME, each after what it depends on.
load_order() {
	awk -v names="$(shift; echo "$*")" '
	BEGIN { n = split(names, want, " ") }
	{ sub(/:/, "", $1); path = $1; base = path; sub(/.*\//, "", base); sub(/\.ko$/, "", base)
	  of[base] = path; for (i = NF; i > 1; i--) deps[path] = deps[path] " " $i }
	function put(path,   on, count, i) {
		if (path in done)
			return
		done[path] = 1
		count = split(deps[path], on, " ")
		for (i = 1; i <= count; i++)
			put(on[i])
		print path
	}
	END { for (i = 1; i <= n; i++) if (want[i] in of) put(of[want[i]]) }' "$1/modules.dep"
}

# What a guest needs before it has its root file system.
early_modules="virtio_pci virtio_blk virtio_console virtio_rng squashfs overlay"

make_initrd() {
	modules=$1/tree/usr/lib/modules/$(cat "$1/release")
	early=$1/early
	rm -rf "$early"
	mkdir -p "$early/bin" "$early/modules"
	tar -C "$early/bin" --strip-components=3 -xf "$vm/root-base.tar" ./usr/bin/busybox
	cp "$top/tests/vm/guest/init" "$early/init"
	chmod +x "$early/init"
	# shellcheck disable=SC2086 # names are words
	load_order "$modules" $early_modules >"$early/order"
	while read -r module; do
		cp "$modules/$module" "$early/modules/"
	done <"$early/order"
	sed -i 's,.*/,,' "$early/order"
	(cd "$early" && find . | cpio -o -H newc -R 0:0 --quiet) >"$1/initrd.new"
	mv "$1/initrd.new" "$1/initrd"
	rm -rf "$early"
}

make_kernel() {
	out=$vm/kernel/$1
	if [ ! -e "$out/complete" ]; then
		if [ "$1" = debug ]; then
			sh "$top/tests/vm/debug-kernel.sh"
		else
			headers=$(sh "$top/scripts/kernel-headers.sh" -i "$vm/kernel" "$B/kernel-headers" "$1")
			[ -n "$headers" ] || unable "the mirror has no kernel $1 for $suite"
			release=${headers##*/linux-headers-}
			rm -rf "$out"
			ln -s "$release" "$out"
			echo "$headers" >"$out/headers"
			echo "$release" >"$out/release"
		fi
	fi
	if [ ! -e "$out/complete" ]; then
		keep_modules "$out/tree" "$(cat "$out/release")" "$top/tests/vm/modules"
		image "$out/tree" "$out/modules.img"
		touch "$out/complete"
	fi
	! stale "$out/initrd" "$top/tests/vm/guest/init" "$vm/root-base.complete" || make_initrd "$out"
}

# The files that ninja makes of what is installed, and of programs for guests alone.
targets() {
	meson introspect "$B/check" --targets | python3 -c '
import json, os, sys
for target in json.load(sys.stdin):
    place = os.path.relpath(os.path.dirname(target["defined_in"]), sys.argv[1])
    if target["installed"] or place in ("tests/vm", "tests/ioctl", "examples"):
        print(*(os.path.relpath(name, sys.argv[2]) for name in target["filename"]))' "$top" "$B/check"
}

# build_user - what guests need of build/check, as `make check` builds it.
build_user() {
	sh "$top/scripts/deps.sh" build check >&2
	[ -e "$B/check/build.ninja" ] || meson setup "$B/check" "$top" -Dtests=true -Dwerror=true >"$vm/user.log" 2>&1 ||
		{ cat "$vm/user.log" >&2; die "user space cannot be configured"; }
	# shellcheck disable=SC2046 # names are words
	ninja -C "$B/check" $(targets) >"$vm/user.log" 2>&1 ||
		{ grep -A 8 -E 'error:|FAILED|undefined' "$vm/user.log" | head -n 60 >&2; die "user space does not build"; }
}

# Programs run where the C library is not older; other libraries come along where the guests' root has them not.
copy_libraries() {
	ours=$(getconf GNU_LIBC_VERSION | cut -d ' ' -f 2)
	theirs=$(tar -xOf "$vm/root-base.tar" ./var/lib/dpkg/status | awk '$1 == "Package:" { name = $2 }
		name == "libc6" && $1 == "Version:" { sub(/-.*/, "", $2); print $2 }')
	[ "$(printf '%s\n' "$ours" "$theirs" | sort -V | tail -n 1)" = "$theirs" ] ||
		unable "this machine's C library $ours is newer than that of guests, $theirs, which cannot run its programs"
	to=$stage/sysroot/usr/lib/x86_64-linux-gnu
	mkdir -p "$to"
	find "$stage/bin" "$stage/sysroot/usr/local/bin" -type f -exec ldd {} + | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p' | sort -u |
		while read -r library; do
			grep -q "/${library##*/}\$" "$vm/root-base.list" || cp -L "$library" "$to/"
		done
}

make_stage() {
	level=$1 stage=$vm/stage
	shift
	build_user
	rm -rf "$stage/sysroot" "${stage:?}/bin" "$stage/documents" "$stage/module"
	mkdir -p "$stage/bin" "$stage/documents" "$stage/fixtures" "$stage/sysroot/usr/lib/firmware"
	DESTDIR=$stage/sysroot meson install -C "$B/check" --no-rebuild --quiet >>"$vm/user.log" 2>&1 ||
		{ tail "$vm/user.log" >&2; die "user space cannot be installed"; }
	# As docs/install.md says.
	ln -s /usr/local/lib/firmware/txda "$stage/sysroot/usr/lib/firmware/"
	python3 "$top/tests/vm/firmware.py" "$stage/sysroot/usr/local/lib/firmware/txda/tx8.fw" "$stage/firmware-images"
	for programs in tests/vm tests/ioctl examples; do
		find "$B/check/$programs" -maxdepth 1 -type f -perm -u+x -exec cp {} "$stage/bin/" \;
	done
	copy_libraries
	cp -a -u "$top/tests/models" "$stage/"
	cp -a -u "$top/tests/fixtures/qwen3" "$stage/fixtures/"
	(cd "$top" && cp -a --parents README.md CONTRIBUTING.md docs scripts/demo.sh tests/docs "$stage/documents/")
	for k in "$@"; do
		headers=$(cat "$vm/kernel/$k/headers") release=$(cat "$vm/kernel/$k/release")
		say "txda.ko for $release"
		mkdir -p "$stage/module/$release"
		for dir in "" tests/vm/exporter; do
			built=$(sh "$top/scripts/module.sh" ${dir:+-m "$top/$dir"} "$headers")
			cp "$built" "$stage/module/$release/"
		done
	done
	[ "$level" = none ] || sh "$top/tests/vm/reference.sh" "$level" "$stage" >"$vm/reference.log" 2>&1 ||
		{ tail "$vm/reference.log" >&2; die "the device model does not run the models"; }
	image "$stage" "$vm/stage.img"
	for k in "$@"; do
		cat "$vm/kernel/$k/release"
	done >"$vm/stage.kernels"
}

make_supervise() {
	stale "$vm/supervise" "$top"/tests/vm/host/*.[ch] || return 0
	sh "$top/scripts/deps.sh" build >&2
	# shellcheck disable=SC2046 # flags are words
	cc -O2 -Wall -Wextra -Wshadow -D_GNU_SOURCE -o "$vm/supervise.new" "$top"/tests/vm/host/*.c \
		$(pkg-config --cflags --libs libcjson)
	mv "$vm/supervise.new" "$vm/supervise"
}

what=${1:-}
[ $# -gt 0 ] && shift
case $what in
root) locked "root-$1" make_root "$@" ;;
qemu) locked qemu make_qemu ;;
accel) locked accel probe_accel "$1" ;;
kernel) locked kernel make_kernel "$1" ;;
stage) locked stage make_stage "$@" ;;
supervise) locked supervise make_supervise ;;
*)
	sed -n '4,15s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
