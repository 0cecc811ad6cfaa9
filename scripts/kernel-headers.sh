#!/bin/sh
# SPDX-License-Identifier: MIT
#
# kernel-headers.sh CACHE - unpack Debian's kernel headers for the kernels that txda supports
# into CACHE (nothing is installed) and print their build directories, one a line.
#
# Debian 12's own kernel has no accel subsystem, and a container has no kernel at all, so the
# headers come from Debian 13 and its backports, from the very mirror that this machine's apt uses. What is
# in CACHE already is not fetched again.
set -eu

# Those that are promised, and the newest one, which tells early what will have to change.
kernels="6.12 7.2 newest"
# shellcheck source=scripts/debian.sh
. "$(dirname "$0")/debian.sh"
cache=$(mkdir -p "$1" && cd "$1" && pwd)
stamp=$cache/complete-$(echo "$kernels" | tr ' ' -)

say() {
	echo "kernel-headers: $*" >&2
}

if [ -e "$stamp" ]; then
	cat "$stamp"
	exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg >/dev/null; then
	say "no apt here, so no headers can be fetched"
	exit 0
fi

if ! debian_mirror >/dev/null; then
	say "apt's configuration names no Debian mirror, so no headers can be fetched"
	exit 0
fi
arch=$(dpkg --print-architecture)
apt=$cache/apt
mkdir -p "$cache/debs" "$cache/root"

unpack() {
	say "fetching $*"
	rm -f "$cache/debs/"*.deb
	(cd "$cache/debs" && debian_apt "$apt" apt-get download "$@" >/dev/null) || return 1
	for deb in "$cache/debs/"*.deb; do
		dpkg -x "$deb" "$cache/root" || return 1
	done
	rm -f "$cache/debs/"*.deb
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
			[ -e "$cache/root/usr/share/doc/libc6" ] || unpack libc6 libelf1t64 zlib1g libzstd1 || return 1
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

: >"$cache/dirs"
if ! debian_apt_setup "$apt" trixie trixie-backports; then
	say "the mirror has no trixie with its backports"
	exit 0
fi
for kernel in $kernels; do
	prefix=$kernel
	[ "$kernel" != newest ] || prefix=
	if ! release=$(debian_kernel "$apt" "$prefix"); then
		say "the mirror has no kernel $kernel for $arch"
		continue
	fi
	dir=$cache/root/usr/src/linux-headers-$release
	! grep -q "^$dir\$" "$cache/dirs" || continue
	version=${release%-"$arch"}
	unpack "linux-headers-$release" "linux-headers-$version-common" "linux-kbuild-$version" || continue
	sed -i "s,/usr/src/,$cache/root/usr/src/," "$dir/Makefile"
	wrap_tools "$version" || continue
	echo "$dir" >>"$cache/dirs"
done
rm -rf "$apt" "$cache/debs"
# An interrupted or failed fetch is tried again next time.
[ -s "$cache/dirs" ] && mv "$cache/dirs" "$stamp" && cat "$stamp"
exit 0
