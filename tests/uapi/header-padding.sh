#!/bin/sh
# SPDX-License-Identifier: MIT
#
# header-padding.sh INCLUDE-DIRECTORY - what crosses a boundary has no padding that the compiler chose: every
# byte of a struct is a named member, so that kernel, chip and all languages agree about it.
set -eu
cc=${CC:-cc}
libdrm=$(pkg-config --variable=includedir libdrm)/libdrm
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for header in txda_isa.h txda_regs.h txda_firmware.h drm/txda_drm.h; do
	printf '#include "%s"\n' "$header" >"$tmp/padding.c"
	$cc -std=c11 -Wpadded -Werror -fsyntax-only -isystem "$libdrm" -I"$1" "$tmp/padding.c"
done
# Nothing changes its shape between 32-bit and 64-bit processes.
if ! grep -nE '^[[:space:]]+(unsigned|int|long|short|char|bool|size_t|void)\b.*;' "$1/drm/txda_drm.h"; then
	exit 0
fi
echo "drm/txda_drm.h has a member whose size depends on the machine"
exit 1
