#!/bin/sh
# SPDX-License-Identifier: MIT
#
# avx512.sh - print meson's option for a build that runs on this machine only: without kernels for AVX-512 if the
# processor lacks it.
set -eu
if [ "$(uname -m)" != x86_64 ] || grep -qw avx512vnni /proc/cpuinfo; then
	echo -Davx512=true
else
	echo -Davx512=false
fi
