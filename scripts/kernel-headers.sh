#!/bin/sh
# SPDX-License-Identifier: MIT
#
# kernel-headers.sh [-i IMAGES] CACHE [K...] - unpack Debian's kernel headers for the kernels K (6.12, 7.2, newest: all that
# txda supports) into CACHE (nothing is installed) and print their build directories, one a line. A K that cannot be had
# is left out. With -i also the kernel and its modules, into IMAGES/RELEASE: vmlinuz, and usr/lib/modules in tree/.
#
# Debian 12's own kernel has no accel subsystem, and a container has no kernel at all, so the
# headers come from Debian 13 and its backports, from the very mirror that this machine's apt uses. What is
# in CACHE already is not fetched again.
set -eu

# shellcheck source=scripts/debian.sh
. "$(dirname "$0")/debian.sh"
images=
if [ "$1" = -i ]; then
	images=$(mkdir -p "$2" && cd "$2" && pwd)
	shift 2
fi
cache=$(mkdir -p "$1" && cd "$1" && pwd)
shift
# Those that are promised, and the newest one, which tells early what will have to change.
kernels=${*:-6.12 7.2 newest}
apt=$cache/apt
# Several may want the same.
exec 9>"$cache/lock"
flock 9

say() {
	echo "kernel-headers: $*" >&2
}

# have K - is it here?
have() {
	[ -e "$cache/$1" ] && dir=$(cat "$cache/$1") && [ -e "$dir/Makefile" ] &&
		{ [ -z "$images" ] || [ -e "$images/${dir##*/linux-headers-}/vmlinuz" ]; }
}

# unpack DIR PACKAGE...
unpack() {
	to=$1
	shift
	rm -rf "$cache/debs"
	mkdir -p "$cache/debs" "$to"
	(cd "$cache/debs" && debian_apt "$apt" apt-get download "$@" >/dev/null) || return 1
	for deb in "$cache/debs/"*.deb; do
		dpkg -x "$deb" "$to" || return 1
	done
	rm -rf "$cache/debs"
}

# kbuild's helpers are built for that suite's libraries. Where this machine's are older or missing,
# the helpers run through a loader and libraries that come along.
wrap_tools() {
	loader=
	# shellcheck disable=SC2044 # names without spaces
	for tool in $(find "$cache/root/usr/lib/linux-kbuild-$1" -type f -perm -u+x); do
		case $tool in *.elf) continue ;; esac
		[ "$(head -c 4 "$tool" | tr -d '\177')" = ELF ] || continue
		ldd "$tool" 2>&1 | grep -q 'not found' || continue
		if [ -z "$loader" ]; then
			[ -e "$cache/root/usr/share/doc/libc6" ] ||
				unpack "$cache/root" libc6 libelf1t64 zlib1g libzstd1 || return 1
			loader=$(find "$cache/root/usr/lib" "$cache/root/usr/lib64" -name 'ld-linux*.so.*' \
				2>/dev/null | head -n 1)
			libs=$(dirname "$(find "$cache/root/usr/lib" -name libc.so.6 | head -n 1)")
		fi
		mv "$tool" "$tool.elf"
		printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
			"$loader" "$libs" "$tool.elf" >"$tool"
		chmod +x "$tool"
	done
}

# fetch K - the newest release of K.
fetch() {
	prefix=$1
	[ "$1" != newest ] || prefix=
	release=$(debian_kernel "$apt" "$prefix") || return 1
	version=${release%-"$arch"}
	dir=$cache/root/usr/src/linux-headers-$release
	if ! grep -qsx "$dir" "$cache"/[0-9n]*; then
		say "fetching headers of $release"
		unpack "$cache/root" "linux-headers-$release" "linux-headers-$version-common" \
			"linux-kbuild-$version" || return 1
		sed -i "s,/usr/src/,$cache/root/usr/src/," "$dir/Makefile"
		wrap_tools "$version" || return 1
	fi
	echo "$dir" >"$cache/$1"
	[ -n "$images" ] && [ ! -e "$images/$release/vmlinuz" ] || return 0
	say "fetching kernel $release"
	image=$images/$release
	rm -rf "$image"
	# Newer kernels have their image and their modules in packages of their own.
	# shellcheck disable=SC2046 # names are words
	unpack "$image/tree" $(debian_apt "$apt" apt-cache pkgnames linux- |
		grep -Fx -e "linux-image-$release" -e "linux-base-$release" -e "linux-binary-$release" -e "linux-modules-$release") ||
		return 1
	rm -rf "$image/tree/usr/share/doc"
	[ -d "$image/tree/usr/lib/modules" ] || { mkdir -p "$image/tree/usr" && mv "$image/tree/lib" "$image/tree/usr/lib"; }
	mv "$(find "$image/tree" -name 'vmlinuz*')" "$image/vmlinuz" && rm -rf "$image/tree/boot"
}

missing=
for kernel in $kernels; do
	have "$kernel" || missing="$missing $kernel"
done
if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
		say "no apt here, so no headers can be fetched"
	elif ! debian_mirror >/dev/null; then
		say "apt's configuration names no Debian mirror, so no headers can be fetched"
	elif ! debian_apt_setup "$apt" trixie trixie-backports; then
		say "the mirror has no trixie with its backports"
	else
		arch=$(dpkg --print-architecture)
		for kernel in $missing; do
			fetch "$kernel" || say "the mirror has no kernel $kernel for $arch"
		done
	fi
	# An interrupted or failed fetch is tried again next time.
	rm -rf "$apt" "$cache/debs"
fi
for kernel in $kernels; do
	! have "$kernel" || echo "$dir"
done | awk '!seen[$0]++'
