#!/bin/sh
# SPDX-License-Identifier: MIT
#
# prepare.sh WHAT [ARGUMENT...] - make what machines are made of, unless it is there; see rig.sh for
# what lands where. Exit status 77: this machine cannot.
#
#   root                       the guests' root file system, with mmdebstrap
#   kernel K                   Debian's newest kernel whose version begins with K; "debug": see
#                              debug-kernel.sh
#   fetch K                    its packages alone, which takes no root file system
#   module SOURCE NAME K...    txda.ko of the sources in SOURCE for kernels K, into the stage of NAME, and modules of tests
#   user SOURCE NAME           their user space
#   accel K                    find out whether KVM works here, with kernel K
#   supervise                  the program that runs a machine
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
# shellcheck source=scripts/debian.sh
. "$top/scripts/debian.sh"
suite=trixie
# Kept apart from the sources of packages: those of the guests' own release come first.
newer=$suite-backports

guest_packages() {
	sed -n 's/^\([a-z0-9][^[:space:]]*\).*/\1/p' "$top/tests/vm/packages"
	sh "$top/scripts/deps.sh" --list build
	host_qemu_serves || echo qemu-system-x86
}

make_root() {
	[ "$(uname -m)" = x86_64 ] || unable "guests are x86-64 machines, and this one is not"
	packages=$(guest_packages | sort -u | paste -s -d ,)
	[ "$(cat "$vm/root.complete" 2>/dev/null)" != "$suite $packages" ] || return 0
	sh "$top/scripts/deps.sh" vm >&2
	command -v mmdebstrap >/dev/null || unable "mmdebstrap is not installed"
	mirror=$(debian_mirror) || unable "apt's configuration names no Debian mirror, so no guest can be made"
	say "making the root file system of the guests ($suite)"
	rm -rf "$vm/root.new" "$vm/root.complete"
	mkdir -p "$vm/root.new"
	printf 'Package: qemu-system-* seabios ipxe-qemu\nPin: release n=%s\nPin-Priority: 900\n' \
		"$newer" >"$vm/preferences"
	printf 'deb [signed-by=%s] %s %s main\ndeb [signed-by=%s] %s %s main\n' \
		"$debian_keyring" "$mirror" "$suite" "$debian_keyring" "$mirror" "$newer" >"$vm/sources"
	# shellcheck disable=SC2016 # $1 is for the hook
	if ! mmdebstrap --variant=minbase --format=tar --aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--setup-hook='mkdir -p "$1/etc/apt/preferences.d" && cp "'"$vm"'/preferences" "$1/etc/apt/preferences.d/newer"' \
		--customize-hook='chroot "$1" useradd --create-home tester && rm -f "$1/etc/apt/sources.list" "$1/etc/hostname" "$1/etc/resolv.conf"' \
		--include="$packages" $suite "$vm/root.tar" "$vm/sources" >"$vm/root.log" 2>&1; then
		tail -n 20 "$vm/root.log" >&2
		unable "mmdebstrap cannot make the root file system, all of it is in $vm/root.log"
	fi
	# Device nodes take a real root; in_root brings those of the host otherwise.
	if ! tar -C "$vm/root.new" -xpf "$vm/root.tar" 2>/dev/null; then
		tar -C "$vm/root.new" -xpf "$vm/root.tar" --exclude='./dev/*'
	fi
	rm -f "$vm/root.tar"
	rm -rf "$root"
	mv "$vm/root.new" "$root"
	mkdir -p "$root/vm"
	# Not compressed: the host's page cache holds it, and an emulated processor unpacks slowly.
	rm -f "$vm/root.img"
	of_root "$root/usr/bin/mksquashfs" "$root" "$vm/root.img" -quiet -no-progress -noI -noD -noF -noX -all-root \
		-wildcards -e 'vm/*' 'dev/*' 'proc/*' 'sys/*' 'usr/bin/qemu*' 'usr/share/qemu*' 'usr/share/seabios' \
		'usr/lib/ipxe' 'usr/lib/x86_64-linux-gnu/qemu' 'var/cache/apt/*' 'var/lib/apt/lists/*' >&2
	echo "$suite $packages" >"$vm/root.complete"
}

# The packages of kernel release $1.
kernel_packages() {
	version=${1%-amd64}
	# Newer kernels have their image and their modules in packages of their own.
	for name in "linux-image-$1" "linux-base-$1" "linux-binary-$1" "linux-modules-$1" "linux-headers-$1" \
		"linux-headers-$version-common" "linux-kbuild-$version"; do
		debian_apt "$vm/apt" apt-cache show "$name" 2>/dev/null | grep -q '^Package:' && echo "$name"
	done
	return 0
}

# depmod_tree TREE RELEASE
depmod_tree() {
	ln -s usr/lib "$1/lib"
	of_root "$root/usr/sbin/depmod" -b "$1" "$2"
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

# make_modules DIR - DIR/tree holds usr/lib/modules/RELEASE and whatever else belongs to the kernel.
make_modules() {
	keep_modules "$1/tree" "$(cat "$1/release")" "$top/tests/vm/modules"
	rm -f "$1/modules.img"
	of_root "$root/usr/bin/mksquashfs" "$1/tree" "$1/modules.img" -quiet -no-progress -noI -noD -noF -noX -all-root >&2
}

make_initrd() {
	modules=$1/tree/usr/lib/modules/$(cat "$1/release")
	early=$1/early
	rm -rf "$early"
	mkdir -p "$early/bin" "$early/modules"
	cp "$root/usr/bin/busybox" "$early/bin/"
	cp "$top/tests/vm/guest/init" "$early/init"
	chmod +x "$early/init"
	# shellcheck disable=SC2086 # names are words
	load_order "$modules" $early_modules >"$early/order"
	while read -r module; do
		cp "$modules/$module" "$early/modules/"
	done <"$early/order"
	sed -i 's,.*/,,' "$early/order"
	(cd "$early" && find . | of_root "$root/usr/bin/cpio" -o -H newc -R 0:0 --quiet) >"$1/initrd.new"
	mv "$1/initrd.new" "$1/initrd"
	rm -rf "$early"
}

make_kernel() {
	out=$vm/kernel/$1
	if stale "$out/complete" "$top/tests/vm/modules"; then
		if [ "$1" = debug ]; then
			locked lists debian_lists
			sh "$top/tests/vm/debug-kernel.sh"
		else
			fetch_kernel "$1"
			# What follows takes modules away.
			rm "$out/fetched"
		fi
		make_modules "$out"
		touch "$out/complete"
	fi
	! stale "$out/initrd" "$top/tests/vm/guest/init" || make_initrd "$out"
}

# What packages there are.
debian_lists() {
	[ ! -e "$vm/apt/ready" ] || return 0
	debian_apt_setup "$vm/apt" $suite $newer || unable "the mirror has no $suite"
	touch "$vm/apt/ready"
}

fetch_ahead() {
	[ "$1" = debug ] || ! stale "$vm/kernel/$1/complete" "$top/tests/vm/modules" || fetch_kernel "$1"
}

fetch_kernel() {
	out=$vm/kernel/$1
	[ ! -e "$out/fetched" ] || return 0
	locked lists debian_lists
	release=$(debian_kernel "$vm/apt" "$1") || unable "the mirror has no kernel $1 for $suite"
	names=$(kernel_packages "$release")
	rm -rf "$out"
	mkdir -p "$out/debs" "$out/tree"
	say "fetching kernel $release"
	# shellcheck disable=SC2086 # names are words
	(cd "$out/debs" && debian_apt "$vm/apt" apt-get download $names >/dev/null) || unable "cannot fetch kernel $1"
	for deb in "$out/debs"/*.deb; do
		dpkg -x "$deb" "$out/tree"
	done
	rm -rf "$out/debs"
	echo "$release" >"$out/release"
	find "$out/tree" -name 'vmlinuz*' -exec cp {} "$out/vmlinuz" \;
	rm -rf "$out/tree/boot" "$out/tree/usr/share/doc"
	touch "$out/fetched"
}

# copy_tree SOURCE DIR - what git knows and what is new in SOURCE, to DIR; what is gone there goes.
# Only what differs is copied, and gets the time of now: a file may be newer here and older there.
copy_tree() {
	mkdir -p "$2"
	if git -C "$1" rev-parse --git-dir >/dev/null 2>&1; then
		git -C "$1" ls-files -co --exclude-standard
	else
		(cd "$1" && find . -type f ! -path './build*' ! -path './.git/*' | sed 's,^\./,,')
	fi | while read -r file; do [ ! -e "$1/$file" ] || echo "$file"; done | sort >"$2.list"
	checksums "$1" "$2.list" >"$2.sums"
	(cd "$2" && find . -type f | sed 's,^\./,,' | sort) >"$2.there"
	comm -23 "$2.there" "$2.list" | (cd "$2" && tr '\n' '\0' | xargs -0 -r rm -f)
	comm -12 "$2.there" "$2.list" >"$2.both"
	checksums "$2" "$2.both" | comm -13 - "$2.sums" | cut -c 67- >"$2.changed"
	tar -C "$1" -T "$2.changed" -c | tar -C "$2" -x -m
}

# checksums DIR LIST - of the files of LIST below DIR, in the order of comm.
checksums() {
	(cd "$1" && tr '\n' '\0' <"$2" | xargs -0 -r sha256sum) | sort
}

# The headers of kernel $1 to where they belong in the root file system.
copy_headers() {
	stale "$root/usr/src/.copied-$1" "$vm/kernel/$1/complete" || return 0
	for part in usr/src usr/lib; do
		for dir in "$vm/kernel/$1/tree/$part"/linux-*; do
			[ ! -d "$dir" ] || cp -a "$dir" "$root/$part/"
		done
	done
	touch "$root/usr/src/.copied-$1"
}

# The directory of a tree is $vm/tree/NAME on the host, /vm/tree/NAME in the root file system.
make_module() {
	source=$1
	name=$2
	shift 2
	dir=$vm/tree/$name
	locked "source-$name" copy_tree "$source" "$dir/src"
	for k in "$@"; do
		release=$(cat "$vm/kernel/$k/release")
		say "txda.ko for $release"
		kdir=/usr/src/linux-headers-$release
		if [ -e "$vm/kernel/$k/linux" ]; then
			kdir=/vm/kernel/$k/linux
		else
			locked headers copy_headers "$k"
		fi
		in_root env B="/vm/tree/$name/module" sh "/vm/tree/$name/src/scripts/module.sh" "$kdir" \
			>"$dir/module.log" 2>&1 || { cat "$dir/module.log" >&2; die "txda.ko does not build for $release"; }
		mkdir -p "$dir/stage/module/$release"
		cp "$dir/module/module/$release/txda.ko" "$dir/stage/module/$release/"
		make_exporter "/vm/tree/$name" "$kdir" "$release"
	done
}

# make_exporter TREE KDIR RELEASE - the exporter of dma-bufs that tests of imports need; TREE in the root file system.
make_exporter() {
	[ -e "$dir/src/tests/vm/exporter" ] || return 0
	mkdir -p "$dir/exporter/$3"
	cp -a -u "$dir/src/tests/vm/exporter/." "$dir/exporter/$3/"
	in_root make -C "$2" M="$1/exporter/$3" CONFIG_DEBUG_INFO_BTF_MODULES= W=1 modules >"$dir/module.log" 2>&1 ||
		{ cat "$dir/module.log" >&2; die "the exporter does not build for $3"; }
	cp "$dir/exporter/$3/txda_exporter.ko" "$dir/stage/module/$3/"
}

make_user() {
	name=$2
	dir=$vm/tree/$name
	locked "source-$name" copy_tree "$1" "$dir/src"
	say "user space"
	[ -e "$dir/obj/build.ninja" ] ||
		in_root meson setup "/vm/tree/$name/obj" "/vm/tree/$name/src" --prefix=/usr --sysconfdir=/etc \
			-Dtests=true "$(sh "$top/scripts/avx512.sh")" >"$dir/user.log" 2>&1 ||
		{ cat "$dir/user.log" >&2; die "user space cannot be configured"; }
	in_root ninja -C "/vm/tree/$name/obj" >"$dir/user.log" 2>&1 ||
		{ grep -A 8 -E 'error:|FAILED|undefined' "$dir/user.log" | head -n 60 >&2; die "user space does not build"; }
	rm -rf "$dir/stage/sysroot" "$dir/stage/bin"
	in_root env DESTDIR="/vm/tree/$name/stage/sysroot" meson install -C "/vm/tree/$name/obj" --no-rebuild --quiet >>"$dir/user.log" 2>&1 ||
		{ tail "$dir/user.log" >&2; die "user space cannot be installed"; }
	mkdir -p "$dir/stage/bin"
	for programs in tests/vm tests/ioctl examples; do
		[ ! -d "$dir/obj/$programs" ] ||
			find "$dir/obj/$programs" -maxdepth 1 -type f -perm -u+x -exec cp {} "$dir/stage/bin/" \;
	done
	for data in models fixtures; do
		rm -rf "$dir/stage/$data"
		cp -al "$dir/src/tests/$data" "$dir/stage/$data"
	done
	rm -rf "$dir/stage/documents"
	mkdir "$dir/stage/documents"
	(cd "$dir/src" && cp -al --parents README.md CONTRIBUTING.md docs scripts/demo.sh tests/docs "$dir/stage/documents/")
	in_root sh "/vm/tree/$name/src/tests/vm/reference.sh" "/vm/tree/$name/stage/sysroot/usr/bin" \
		"/vm/tree/$name/src" "/vm/tree/$name/stage" >"$dir/reference.log" 2>&1 ||
		{ tail "$dir/reference.log" >&2; die "the device model does not run the models"; }
}

make_supervise() {
	stale "$vm/supervise" "$top"/tests/vm/host/*.[ch] || return 0
	sh "$top/scripts/deps.sh" build >&2
	# shellcheck disable=SC2046 # flags are words
	cc -O2 -Wall -Wextra -Wshadow -D_GNU_SOURCE -o "$vm/supervise.new" "$top"/tests/vm/host/*.c \
		$(pkg-config --cflags --libs libcjson)
	mv "$vm/supervise.new" "$vm/supervise"
}

# A device file says little: inside of some virtual machines guests of KVM do not run.
probe_accel() {
	[ ! -e "$vm/accel" ] || return 0
	accel=tcg
	if [ -w /dev/kvm ]; then
		# shellcheck disable=SC2046 # words
		timeout -k 1 5 $(qemu_command) -nodefaults -no-user-config -display none -no-reboot -machine q35 -m 512M \
			-accel kvm -cpu host -kernel "$vm/kernel/$1/vmlinuz" -append "console=ttyS0 panic=-1" -serial stdio \
			</dev/null >"$vm/accel.log" 2>&1 || true
		! grep -q 'Kernel panic.*root fs' "$vm/accel.log" || accel=kvm
	fi
	echo $accel >"$vm/accel"
}

what=${1:-}
[ $# -gt 0 ] && shift
case $what in
root) locked root make_root ;;
kernel) locked "kernel-$1" make_kernel "$1" ;;
fetch) locked "kernel-$1" fetch_ahead "$1" ;;
module) locked "module-$2" make_module "$@" ;;
user) locked "user-$2" make_user "$@" ;;
accel) locked accel probe_accel "$1" ;;
supervise) locked supervise make_supervise ;;
*)
	sed -n '4,16s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
