#!/bin/sh
# SPDX-License-Identifier: MIT
#
# promtool.sh CACHE - print the path of promtool: this machine's, or that of Debian's package prometheus, which is
# unpacked into CACHE and not installed: it would start a server. Exit status 1: there is none.
set -eu
if command -v promtool; then
	exit 0
fi
# shellcheck source=scripts/debian.sh
. "$(dirname "$0")/debian.sh"
cache=$(mkdir -p "$1" && cd "$1" && pwd)
if [ ! -x "$cache/promtool" ]; then
	suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	debian_apt_setup "$cache/apt" "$suite" || exit 1
	(cd "$cache" && debian_apt "$cache/apt" apt-get download prometheus >/dev/null 2>&1) || exit 1
	dpkg --fsys-tarfile "$cache"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$cache/promtool.new"
	rm -rf "$cache/apt" "$cache"/prometheus_*.deb
	chmod +x "$cache/promtool.new"
	mv "$cache/promtool.new" "$cache/promtool"
fi
echo "$cache/promtool"
