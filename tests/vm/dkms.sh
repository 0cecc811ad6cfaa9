#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dkms.sh K - DKMS adds, builds, installs and removes the module for kernel K, and skips a
# kernel without the accel subsystem; what it installed is loaded by its PCI id's alias in a machine.
# DKMS runs on the host, in a scratch copy of the guests' root file system: a compiler takes its time
# on an emulated processor. Exit status 77: skipped, the last line says why.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"
# shellcheck source=scripts/debian.sh
. "$top/scripts/debian.sh"
[ $# -eq 1 ] || {
	sed -n '4,7s/^# \{0,1\}//p' "$0"
	exit 2
}
k=$1
release=$(cat "$vm/kernel/$k/release")
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$top/dkms.conf")
without=$vm/kernel/without-accel
work=$(mktemp -d "$vm/dkms.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$work/upper" "$work/work" "$work/root" "$work/stage"

# Headers of Debian 12's kernel: a real one that cannot have the module.
fetch_without_accel() {
	[ ! -e "$without/release" ] || return 0
	rm -rf "$without"
	mkdir -p "$without/tree"
	debian_apt_setup "$without/apt" bookworm || return 1
	headers=$(debian_apt "$without/apt" apt-cache depends linux-headers-amd64 |
		sed -n 's/.*Depends: \(linux-headers-[0-9].*\)$/\1/p' | head -n 1)
	[ -n "$headers" ] || return 1
	common=${headers%-amd64}-common
	(cd "$without" && debian_apt "$without/apt" apt-get download "$headers" "$common" >/dev/null) || return 1
	for deb in "$without"/*.deb; do
		dpkg -x "$deb" "$without/tree"
	done
	rm -rf "$without"/*.deb "$without/apt"
	# Debian 12 has its modules in /lib, which is a link in later ones.
	[ ! -d "$without/tree/lib" ] || { cp -a "$without/tree/lib/." "$without/tree/usr/lib/" && rm -rf "$without/tree/lib"; }
	echo "${headers#linux-headers-}" >"$without/release"
}

locked without-accel fetch_without_accel || unable "the mirror has no headers of Debian 12's kernel"
lower=$without/tree:$vm/kernel/$k/tree:$root
in_copy true || unable "no overlay of the root file system can be mounted here"
none=$(cat "$without/release")
sh "$top/scripts/dkms-source.sh" "$work/upper"

in_copy sh -eu -s "$version" "$release" "$none" <<'END'
version=$1 release=$2 none=$3
dkms add "txda/$version"
if ! dkms build "txda/$version" -k "$release"; then
	cat "/var/lib/dkms/txda/$version/build/make.log"
	exit 1
fi
dkms install "txda/$version" -k "$release"
dkms status txda | grep -q "$release.*installed"
modinfo -k "$release" txda
modinfo -k "$release" -F filename txda | grep -q "/updates/dkms/txda.ko"
status=0
dkms build "txda/$version" -k "$none" >exclusive 2>&1 || status=$?
cat exclusive
if [ $status -ne 77 ] || ! grep -q BUILD_EXCLUSIVE exclusive; then
	echo "dkms does not leave out kernel $none, which has no accel: exit status $status"
	exit 1
fi
dkms autoinstall -k "$none"
! dkms status txda -k "$none" | grep -q "$none"
END

# The machine gets what DKMS installed as a layer over its modules.
mkdir -p "$work/stage/sysroot/usr/lib/modules"
cp -a "$work/upper/usr/lib/modules/$release" "$work/stage/sysroot/usr/lib/modules/"
# shellcheck disable=SC2016 # for the guest's shell
sh "$top/tests/vm/run.sh" -k "$k" -n 0 -t "$work/stage" -- '
	modprobe pci:v00001AF4d000010F8sv00001AF4sd00001100bc12sc00i00 && [ -d /sys/module/txda ] && rmmod txda'

in_copy sh -eu -s "$version" "$release" <<'END'
version=$1 release=$2
dkms remove "txda/$version" --all
[ -z "$(dkms status txda)" ]
! modinfo -k "$release" txda 2>/dev/null
END

# What the documents say to type, which is about the kernel that runs.
mkdir -p "$work/upper/documents" "$work/upper/usr/local/bin"
(cd "$top" && cp -a --parents README.md CONTRIBUTING.md docs scripts/demo.sh tests/docs "$work/upper/documents/")
cat >"$work/upper/usr/local/bin/uname" <<END
#!/bin/sh
[ "\$*" != -r ] || exec echo $release
exec /usr/bin/uname "\$@"
END
chmod +x "$work/upper/usr/local/bin/uname"
in_copy env PATH="/usr/local/bin:$PATH" sh /documents/tests/docs/commands.sh --place dkms
echo "dkms: added, built, installed, loaded, removed on $release; left out on $none"
