#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dkms.sh SOURCE - the module's sources that root installs for DKMS are root's and for nobody else to change, whoever owns the
# tree; what an earlier version had and this one has not is gone. As another user than root: all of it but the owner.
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/tree"
for part in Kbuild dkms.conf driver uapi LICENSES scripts; do
	cp -R "$1/$part" "$tmp/tree/"
done
chmod -R go=,g+w "$tmp/tree"
[ "$(id -u)" -ne 0 ] || chown -R nobody "$tmp/tree"
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$1/dkms.conf")
to=$tmp/root/usr/src/txda-$version
mkdir -p "$to/driver"
touch "$to/driver/gone.c"
cp "$1/dkms.conf" "$to/"
[ "$(id -u)" -ne 0 ] || chown nobody "$to/dkms.conf"

(umask 077 && sh "$tmp/tree/scripts/dkms-source.sh" "$tmp/root")
find "$tmp/root/usr/src" ! -user "$(id -un)" -o ! -group "$(id -gn)" -o -type f ! -perm 644 -o -type d ! -perm 755 | tee "$tmp/wrong"
[ ! -s "$tmp/wrong" ]
[ ! -e "$to/driver/gone.c" ]
for part in Kbuild dkms.conf driver uapi LICENSES; do
	diff -r "$1/$part" "$to/$part"
done
