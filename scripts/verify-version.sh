#!/bin/sh
# SPDX-License-Identifier: MIT
#
# verify-version.sh - the project, the kernel module and the packages carry one version.
set -eu
cd "$(dirname "$0")/.."
meson=$(sed -n "s/^[[:space:]]*version: '\(.*\)',/\1/p" meson.build | head -n 1)
dkms=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' dkms.conf)
debian=$(sed -n '1s/.*(\(.*\)).*/\1/p' packaging/debian/changelog)
[ "$meson" = "$dkms" ] && [ "$meson" = "$debian" ] && exit 0
echo "versions differ: meson.build $meson, dkms.conf $dkms, packaging/debian/changelog $debian"
exit 1
