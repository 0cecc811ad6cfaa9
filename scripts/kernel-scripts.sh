#!/bin/sh
# SPDX-License-Identifier: MIT
#
# kernel-scripts.sh - sourced by what runs the kernel's own checks on the driver.
#
#   kernel_scripts CACHE   make sure that CACHE/scripts has them, or say in a line why not and exit with status 77
#
# Headers come without most scripts, so they are taken out of the package of Debian's newest kernel sources, which is
# not kept (165 MB).

# shellcheck source=scripts/debian.sh
. "$(dirname "$0")/debian.sh"

kernel_scripts_fetch() {
	debian_apt_setup "$1/apt" trixie-backports || return 1
	source=$(debian_apt "$1/apt" apt-cache search --names-only '^linux-source-[0-9.]*$' |
		cut -d ' ' -f 1 | sort -V | tail -n 1 | grep .) || return 1
	rm -rf "$1/new"
	mkdir "$1/new"
	(cd "$1/new" && debian_apt "$1/apt" apt-get download "$source" >/dev/null 2>&1) || return 1
	dpkg --fsys-tarfile "$1/new/$source"_*.deb | tar -xO "./usr/src/$source.tar.xz" |
		tar -C "$1/new" --strip-components=1 -xJf - "$source/scripts/checkpatch.pl" "$source/scripts/spelling.txt" \
			"$source/scripts/const_structs.checkpatch" "$source/scripts/coccicheck" "$source/scripts/coccinelle" || return 1
	rm -rf "$1/scripts"
	mv "$1/new/scripts" "$1/scripts"
	rm -rf "$1/new" "$1/apt"
}

kernel_scripts() {
	[ ! -e "$1/scripts/coccicheck" ] || return 0
	mkdir -p "$1"
	(
		flock 9
		[ -e "$1/scripts/coccicheck" ] || kernel_scripts_fetch "$1"
	) 9>"$1/lock" || {
		echo "Debian's kernel sources, which have the kernel's checks, cannot be fetched"
		exit 77
	}
}
