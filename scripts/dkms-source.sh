#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dkms-source.sh DESTDIR - put the module's sources where DKMS looks for them, below DESTDIR:
# usr/src/txda-VERSION. After that, as root: dkms install txda/VERSION
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
to=$1/usr/src/txda-$version
# DKMS runs and compiles them as root: they must not belong to whoever has the tree, nor be writable for others.
umask 022
rm -rf "$to"
mkdir -p "$to"
cp -R --preserve=timestamps --no-preserve=mode Kbuild dkms.conf driver uapi LICENSES "$to/"
