#!/bin/sh
# SPDX-License-Identifier: MIT
#
# avx512.sh - the option of meson for builds that run on this machine alone: without kernels for AVX-512 where the
# processor has none. They are a third of what there is to compile.
set -eu
if [ "$(uname -m)" != x86_64 ] || grep -qw avx512vnni /proc/cpuinfo; then
	echo -Davx512=true
else
	echo -Davx512=false
fi
