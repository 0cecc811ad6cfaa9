#!/bin/sh
# SPDX-License-Identifier: MIT
#
# deb.sh - Debian packages from a copy of what git knows, into build/deb.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "${B:=build}"
B=$(cd "$B" && pwd)
sh scripts/deps.sh build check deb
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
out=$B/deb
rm -rf "$out"
mkdir -p "$out/txda-$version"
git ls-files -z | xargs -0 cp --parents -t "$out/txda-$version"
cd "$out/txda-$version"
cp -r packaging/debian debian
dpkg-buildpackage -us -uc -b >"$out/build.log" 2>&1 || {
	tail -n 40 "$out/build.log"
	echo "The packages do not build; all of it is in $out/build.log" >&2
	exit 1
}
ls "$out"/*.deb
