#!/bin/sh
# SPDX-License-Identifier: MIT
#
# kernel-headers.sh CACHE - unpack Debian's kernel headers for the kernels that txda supports
# into CACHE (nothing is installed) and print their build directories, one a line.
#
# Debian 12's own kernel has no accel subsystem, and a container has no kernel at all, so the
# headers come from the suites below, from the very mirror that this machine's apt uses. What is
# in CACHE already is not fetched again.
set -eu

suites="trixie trixie-backports"
cache=$(mkdir -p "$1" && cd "$1" && pwd)
stamp=$cache/complete

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

# The mirror: where apt gets the main component of this machine's own release from.
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# shellcheck disable=SC2016 # the format is apt's, not the shell's
mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 2>/dev/null |
	awk -v c="$codename" '($1 == c || $1 ~ /stable$/) && $2 == "main" { print $3; exit }')
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
if [ -z "$mirror" ] || [ ! -e $keyring ]; then
	say "apt's configuration names no Debian mirror, so no headers can be fetched"
	exit 0
fi
arch=$(dpkg --print-architecture)

# An apt of its own: its lists, its cache, its sources, and no packages installed.
apt=$cache/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$cache/debs" "$cache/root"
: >"$apt/status"
write_sources() {
	cat >"$apt/debian.sources" <<-END
		Types: deb
		URIs: $mirror
		Suites: $1
		Components: main
		Architectures: $arch
		Signed-By: $keyring
	END
}
own_apt() {
	tool=$1
	shift
	"$tool" -q -o Dir::Etc::sourcelist="$apt/debian.sources" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::Etc::preferencesparts=/dev/null -o Dir::State::lists="$apt/lists" \
		-o Dir::State::status="$apt/status" -o Dir::Cache="$apt" -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::Retries=2 "$@"
}

unpack() {
	say "fetching $*"
	rm -f "$cache/debs/"*.deb
	(cd "$cache/debs" && own_apt apt-get download "$@" >/dev/null) || return 1
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
for suite in $suites; do
	rm -rf "$apt/lists" && mkdir -p "$apt/lists/partial"
	write_sources "$suite"
	if ! own_apt apt-get update >/dev/null 2>&1; then
		say "the mirror has no $suite"
		continue
	fi
	headers=$(own_apt apt-cache depends "linux-headers-$arch" 2>/dev/null |
		sed -n 's/.*Depends: \(linux-headers-[0-9].*\)$/\1/p' | head -n 1)
	if [ -z "$headers" ]; then
		say "$suite has no kernel headers for $arch"
		continue
	fi
	release=${headers#linux-headers-}
	version=${release%-"$arch"}
	unpack "$headers" "linux-headers-$version-common" "linux-kbuild-$version" || continue
	dir=$cache/root/usr/src/$headers
	sed -i "s,/usr/src/,$cache/root/usr/src/," "$dir/Makefile"
	wrap_tools "$version" || continue
	echo "$dir" >>"$cache/dirs"
done
rm -rf "$apt" "$cache/debs"
# An interrupted or failed fetch is tried again next time.
[ -s "$cache/dirs" ] && mv "$cache/dirs" "$stamp" && cat "$stamp"
exit 0
