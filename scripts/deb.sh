#!/bin/sh
# SPDX-License-Identifier: MIT
#
# deb.sh - Debian packages from a copy of the sources, into build/deb; debug symbols into build/deb/dbgsym.
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
sh scripts/copy-source.sh "$out/txda-$version"
cd "$out/txda-$version"
cp -r packaging/debian debian
export DEB_BUILD_OPTIONS="nocheck ${DEB_BUILD_OPTIONS:-}"
sh scripts/progress.sh "$out/build.log" dpkg-buildpackage -Pnocheck -us -uc -b || {
	tail -n 40 "$out/build.log"
	echo "The packages do not build; all of it is in $out/build.log" >&2
	exit 1
}
# Apart from the others, so that apt-get install build/deb/*.deb leaves them out.
find "$out" -maxdepth 1 -name '*-dbgsym_*.deb' -exec mv {} "$out/dbgsym/" \;
ls "$out"/*.deb
