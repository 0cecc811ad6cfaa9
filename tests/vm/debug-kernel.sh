#!/bin/sh
# SPDX-License-Identifier: MIT
#
# debug-kernel.sh - build the kernel of kernel-debug.config from Debian's sources of 7.2, in
# build/vm/kernel/debug/linux; prepare.sh does the rest. Takes a quarter of an
# hour on two cores, half a minute when only the configuration's file time changed.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
# shellcheck source=scripts/debian.sh
. "$top/scripts/debian.sh"
source=linux-source-7.2
out=$vm/kernel/debug
config=$top/tests/vm/kernel-debug.config

sh "$top/scripts/deps.sh" module kernel >&2
mkdir -p "$out"
if [ ! -e "$out/linux/Makefile" ]; then
	say "fetching $source"
	rm -rf "$out/fetch" "$out/linux"
	mkdir -p "$out/fetch" "$out/linux.new"
	debian_apt_setup "$out/apt" trixie-backports || unable "the mirror has no trixie-backports"
	(cd "$out/fetch" && debian_apt "$out/apt" apt-get download "$source" >/dev/null) || unable "cannot fetch $source"
	dpkg -x "$out/fetch/"*.deb "$out/fetch"
	tar -C "$out/linux.new" --strip-components=1 -xf "$out/fetch/usr/src/$source.tar.xz"
	rm -rf "$out/fetch" "$out/apt"
	mv "$out/linux.new" "$out/linux"
fi
# The hot-plug driver takes its own lock and that of the PCI bus in both orders, at every plug, and
# lockdep is silent after the first thing it finds: it would not see our module.
hpc=$out/linux/drivers/pci/hotplug/pciehp_hpc.c
grep -q lockdep_set_novalidate_class "$hpc" ||
	sed -i 's/^\tinit_rwsem(&ctrl->reset_lock);$/&\n\tlockdep_set_novalidate_class(\&ctrl->reset_lock);/' "$hpc"
build() {
	nice make -C "$out/linux" -j "$(nproc)" "$@"
}
say "building the debug kernel, see $out/build.log"
{
	build tinyconfig
	cp "$config" "$out/linux/fragment.config"
	(cd "$out/linux" && scripts/kconfig/merge_config.sh -m .config fragment.config)
	build olddefconfig
} >"$out/build.log" 2>&1
# Kconfig drops what it cannot have without a word.
sed -n 's/^\(CONFIG_[A-Z0-9_]*=[ym].*\)/\1/p' "$config" | while read -r line; do
	option=${line%%=*}
	grep -q "^$option=[ym]" "$out/linux/.config" || case $line in *=\"*) ;; *) say "the debug kernel has no $option" ;; esac
done
if ! build bzImage modules >>"$out/build.log" 2>&1; then
	grep -E -A 5 'error:|Error ' "$out/build.log" | tail -n 40 >&2
	die "the debug kernel does not build"
fi
rm -rf "$out/tree"
mkdir -p "$out/tree/usr/lib"
ln -s usr/lib "$out/tree/lib"
build modules_install INSTALL_MOD_PATH="$out/tree" >>"$out/build.log" 2>&1
rm -rf "$out/tree/lib" "$out/tree/usr/lib/modules/"*/build
cat "$out/linux/include/config/kernel.release" >"$out/release"
echo "$out/linux" >"$out/headers"
cp "$out/linux/arch/x86/boot/bzImage" "$out/vmlinuz"
