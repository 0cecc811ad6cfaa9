#!/bin/sh
# SPDX-License-Identifier: MIT
#
# verify-kconfig.sh CACHE - the options of driver/Kconfig through the kernel's own conf: they parse without a word, name
# options that Debian's newest kernel has, can be chosen where their dependencies hold and nowhere else, and Kbuild
# builds what they say. CACHE is that of kernel-headers.sh. Exit status 77: there are no headers.
set -eu
cd "$(dirname "$0")/.."
top=$PWD
cache=$(mkdir -p "$1" && cd "$1" && pwd)
headers=$(sh scripts/kernel-headers.sh "$cache" newest 2>/dev/null)
[ -n "$headers" ] || {
	echo "Debian's kernel headers cannot be fetched"
	exit 77
}
version=${headers##*/linux-headers-}
conf=$cache/root/usr/lib/linux-kbuild-${version%-*}/scripts/kconfig/conf
options=$headers/.config
[ -x "$conf" ] || {
	echo "no conf among the headers of $version"
	exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

die() {
	echo "$*" >&2
	exit 1
}

# What the driver's options name and do not define, with its type. An option that is off need not be listed.
own=$(sed -n 's/^config //p' driver/Kconfig)
names=$(grep -E '^	(depends on|select|default|bool|tristate) ' driver/Kconfig | sed 's/"[^"]*"//' |
	grep -oE '\b[A-Z0-9][A-Z0-9_]+\b' | sort -u)
for name in $names; do
	echo "$own" | grep -qx "$name" && continue
	case $name in
	# Off in Debian's kernels, and not asked about while that is so; of other machines.
	KUNIT_ALL_TESTS | CPU_BIG_ENDIAN) ;;
	*) grep -qE "^(CONFIG_$name=[ym]|# CONFIG_$name is not set)$" "$options" || die "driver/Kconfig names $name, which $version does not have" ;;
	esac
	kind=bool
	if [ "$name" = KUNIT ] || grep -qx "CONFIG_$name=m" "$options"; then
		kind=tristate
	fi
	printf 'config %s\n\t%s "%s"\n\n' "$name" "$kind" "$name"
done >"$work/Kconfig"
printf 'config MODULES\n\tbool "MODULES"\n\tmodules\n\nsource "driver/Kconfig"\n' >>"$work/Kconfig"

# configure LINE... - the configuration with all that can be chosen, but for LINE, of a little-endian machine.
configure() {
	: >"$work/lines"
	case $* in
	*CPU_BIG_ENDIAN*) ;;
	*) set -- "$@" '# CONFIG_CPU_BIG_ENDIAN is not set' ;;
	esac
	for line in CONFIG_MODULES=y "$@"; do
		echo "$line" >>"$work/lines"
	done
	(
		# It writes include/ where it runs.
		cd "$work"
		KCONFIG_ALLCONFIG=lines KCONFIG_CONFIG=config KCONFIG_WERROR=1 srctree=$top "$conf" --allmodconfig Kconfig
	) >"$work/output" 2>&1 || die "conf: $(cat "$work/output")"
	! grep -i warning "$work/output" || die "conf warns"
}

# built LINE... - objects of the module that Kbuild would build with these options, and the list that has the module.
built() {
	# shellcheck disable=SC2016 # for make
	printf '%s\n' "$@" 'src := .' 'include Kbuild' 'all:; @echo $(foreach v,y m,$(if $(filter txda.o,$(obj-$(v))),obj-$(v))) $(txda-y)' >"$work/Makefile"
	make -s -f "$work/Makefile" CC=false all 2>/dev/null
}

configure
for option in DRM_ACCEL_TXDA=m DRM_ACCEL_TXDA_KUNIT_TEST=y; do
	grep -qx "CONFIG_$option" "$work/config" || die "not to be had with all that it needs: $option"
done
for without in DRM_ACCEL PCI HAS_IOMEM 64BIT MMU PAGE_SIZE_4KB NET HWMON; do
	configure "# CONFIG_$without is not set"
	! grep -q '^CONFIG_DRM_ACCEL_TXDA=' "$work/config" || die "to be had without $without"
done
configure CONFIG_CPU_BIG_ENDIAN=y
! grep -q '^CONFIG_DRM_ACCEL_TXDA=' "$work/config" || die "to be had on a big-endian machine"
configure '# CONFIG_KUNIT is not set'
grep -qx 'CONFIG_DRM_ACCEL_TXDA=m' "$work/config" || die "it needs KUNIT"
! grep -q '^CONFIG_DRM_ACCEL_TXDA_KUNIT_TEST=' "$work/config" || die "its tests are to be had without KUNIT"

test=driver/tests/txda_test.o
for case in "obj-m:" "obj-m:CONFIG_DRM_ACCEL_TXDA=m" "obj-y:CONFIG_DRM_ACCEL_TXDA=y"; do
	objects=$(built "${case#*:}")
	[ "${objects%% *}" = "${case%%:*}" ] || die "with '${case#*:}' Kbuild builds $objects"
	case $objects in *"$test"*) die "tests without KUnit" ;; esac
done
for options in CONFIG_KUNIT=y "CONFIG_DRM_ACCEL_TXDA=m CONFIG_DRM_ACCEL_TXDA_KUNIT_TEST=y"; do
	# shellcheck disable=SC2086 # words
	[ "$(built $options | tr ' ' '\n' | grep -cx "$test")" -eq 1 ] || die "no tests, or twice, with $options"
done
case $(built CONFIG_KUNIT=y CONFIG_DRM_ACCEL_TXDA=m) in *"$test"*) die "tests that were not chosen" ;; esac
