#!/bin/sh
# SPDX-License-Identifier: MIT
#
# deb.sh - Debian packages from a copy of the sources, into build/deb; debug symbols into build/deb/dbgsym.
# The same sources and tools make the same packages, bit for bit, wherever and by whomever they are built.
# Tests are neither built nor run, that is `make check`; a plain dpkg-buildpackage does both.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${B:=build}"
B=$(cd "$B" && pwd)
sh scripts/deps.sh deb build
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
out=$B/deb
rm -rf "$out"
mkdir -p "$out/dbgsym"
echo "Building Debian packages of version $version into $out."
# Not below $B, which may have any name: dpkg leaves a path with a space in debug symbols, and they differ.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/txda-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
sh scripts/copy-source.sh "$work/txda-$version"
cd "$work/txda-$version"
cp -r packaging/debian debian
export DEB_BUILD_OPTIONS="nocheck ${DEB_BUILD_OPTIONS:-}"
sh scripts/progress.sh "$out/build.log" dpkg-buildpackage -Pnocheck -us -uc -b || {
	tail -n 40 "$out/build.log"
	echo "The packages do not build; all of it is in $out/build.log" >&2
	exit 1
}
# Apart from the others, so that apt-get install build/deb/*.deb leaves them out.
mv "$work"/*-dbgsym_*.deb "$out/dbgsym/"
mv "$work"/*.deb "$work"/*.buildinfo "$out/"
ls "$out"/*.deb
