#!/bin/sh
# SPDX-License-Identifier: MIT
#
# arm-root.sh DIR - what a build for ARM needs on a machine that is none: DIR/root, the libraries of this
# machine's Debian release for arm64, and DIR/cross.ini, by which meson builds against them and runs programs in
# QEMU's emulator of user space. Nothing is installed. Exit status 77 where the packages cannot be fetched; the
# last line says why.
set -eu
cd "$(dirname "$0")/.."
to=$1
[ ! -e "$to/complete" ] || exit 0
mkdir -p "$to"
to=$(cd "$to" && pwd)
# shellcheck source=scripts/debian.sh
. scripts/debian.sh

codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
# The compiler has its own C library and start files.
packages="libcmocka-dev $(sh scripts/deps.sh --list build | grep '^lib.*-dev$' | grep -v '^libc6-dev$')"
if ! debian_apt_setup -a arm64 "$to/apt" "$codename"; then
	echo "no packages for arm64: this machine's apt names no Debian mirror that answers"
	exit 77
fi
# shellcheck disable=SC2086 # words
if ! debian_apt "$to/apt" apt-get -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -y --no-install-recommends \
	--download-only install $packages >"$to/fetch.log" 2>&1; then
	tail -n 5 "$to/fetch.log"
	echo "the libraries for arm64 could not be fetched: $to/fetch.log"
	exit 77
fi
rm -rf "$to/root"
mkdir "$to/root"
for package in "$to"/apt/archives/*.deb; do
	dpkg-deb -x "$package" "$to/root"
done
rm -rf "$to/apt"

lib=$to/root/usr/lib/aarch64-linux-gnu
cat >"$to/cross.ini" <<END
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
# Without what no program here looks for before it runs: a path may use only what it is chosen for.
exe_wrapper = ['qemu-aarch64', '-L', '$to/root', '-cpu', 'max,pauth=off']

[built-in options]
# Fewer combinations of flags than the processor's own tests try: it is emulated.
c_args = ['--sysroot=$to/root', '-DFLAG_STEPS=20']
c_link_args = ['--sysroot=$to/root']

[properties]
sys_root = '$to/root'
pkg_config_libdir = ['$lib/pkgconfig', '$to/root/usr/share/pkgconfig']

[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
touch "$to/complete"
