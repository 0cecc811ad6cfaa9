#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dkms-source.sh DESTDIR - put the module's sources where DKMS looks for them, below DESTDIR:
# usr/src/txda-VERSION. After that, as root: dkms install txda/VERSION
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
to=$1/usr/src/txda-$version
mkdir -p "$to"
cp -a Kbuild dkms.conf driver uapi LICENSES "$to/"
