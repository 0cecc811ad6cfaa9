#!/bin/sh
# SPDX-License-Identifier: MIT
#
# older-debs.sh DIR VERSION DEB... - the packages DEB as those of the older VERSION, into DIR: an upgrade starts
# from them. They differ in nothing but the version, also in that of the module's sources for DKMS.
set -eu
[ $# -ge 3 ] || {
	sed -n '4,5s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
out=$1 older=$2
shift 2
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
# Contents of packages are readable by all.
umask 022
for deb in "$@"; do
	tree=$work/tree
	version=$(dpkg-deb -f "$deb" Version)
	pattern=$(printf '%s' "$version" | sed 's/[.+]/\\&/g')
	dpkg-deb -R "$deb" "$tree"
	find "$tree/DEBIAN" -type f -exec sed -i "s/$pattern/$older/g" {} +
	if [ -e "$tree/usr/src/txda-$version" ]; then
		mv "$tree/usr/src/txda-$version" "$tree/usr/src/txda-$older"
		sed -i "s/^PACKAGE_VERSION=.*/PACKAGE_VERSION=\"$older\"/" "$tree/usr/src/txda-$older/dkms.conf"
	fi
	dpkg-deb --root-owner-group -b "$tree" "$out" >/dev/null
	rm -r "$tree"
done
