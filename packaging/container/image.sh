#!/bin/sh
# SPDX-License-Identifier: MIT
#
# image.sh [-s SUITE] [-t NAME:TAG] DEBS OUTPUT - a container image of txdad with the device model, made of the packages in the
# directory DEBS (make deb) and of Debian SUITE, for which they were built; OUTPUT is an archive in the form of OCI, which
# `podman load` and `docker load` take.
#
#   -s SUITE      bookworm or trixie (default: this machine's)
#   -t NAME:TAG   default: localhost/txdad and the packages' version
#
# Needs mmdebstrap and no container engine. The same packages and mirror make the same bytes.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=scripts/debian.sh
. "$top/scripts/debian.sh"

usage() {
	sed -n '4,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

die() {
	echo "image: $*" >&2
	exit 1
}

suite='' tag=''
while getopts s:t: option; do
	case $option in
	s) suite=$OPTARG ;;
	t) tag=$OPTARG ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 2 ] || usage
[ -n "$suite" ] || suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed"
mirror=$(debian_mirror) || die "apt's configuration names no Debian mirror"
daemon=$(find "$1" -maxdepth 1 -name 'txdad_*.deb')
[ "$(echo "$daemon" | grep -c .)" -eq 1 ] || die "in $1 one package txdad is wanted, there is: ${daemon:-none}"
version=$(dpkg-deb -f "$daemon" Version)
architecture=$(dpkg-deb -f "$daemon" Architecture)
: "${tag:=localhost/txdad:$version}"
# Files of a package are no younger than its changelog.
SOURCE_DATE_EPOCH=$(dpkg-deb --fsys-tarfile "$daemon" | tar -tv --full-time --utc |
	awk '{ print $4 " " $5 " UTC" }' | sort | tail -n 1 | date -u -f - +%s)
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

# In /tmp also where TMPDIR is another: the packages are to have the same path inside, where mmdebstrap empties /tmp at the end.
work=$(mktemp -d /tmp/txda-image.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# The user that mmdebstrap becomes reads the packages there.
chmod 755 "$work"
mkdir -p "$work/image/blobs/sha256"
apt_proxies >"$work/proxies"
mkdir "$work/debs"
debs=$1
output=$2
set --
for package in libtxda0 txda-tools txdad; do
	deb=${package}_${version}_$architecture.deb
	install -m 644 "$debs/$deb" "$work/debs/"
	set -- "$@" --include="$work/debs/$deb"
done

if ! mmdebstrap --variant=essential --format=tar --skip=output/dev --aptopt="$work/proxies" \
	--aptopt='APT::Install-Recommends "false"' --dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--essential-hook="copy-in $work /tmp" "$@" "$suite" "$work/layer" "$mirror" >"$work/log" 2>&1; then
	tail -n 30 "$work/log" >&2
	die "mmdebstrap cannot make the file system, see above"
fi

# Accounts, directories, and what tells of this machine, are changed in the archive.
# 10001 is nobody's number on a host.
uid=10001
mkdir -p "$work/add/etc" "$work/own/run/txda" "$work/own/var/cache/txda" "$work/add/models"
for file in passwd group; do
	tar -xOf "$work/layer" ./etc/$file >"$work/add/etc/$file"
done
echo "txda:x:$uid:$uid::/var/cache/txda:/usr/sbin/nologin" >>"$work/add/etc/passwd"
echo "txda:x:$uid:" >>"$work/add/etc/group"
find "$work/add" "$work/own" -type d -exec chmod 755 {} +
chmod 644 "$work"/add/etc/*
tar --delete -f "$work/layer" ./etc/passwd ./etc/group ./etc/resolv.conf ./etc/hostname ./etc/apt
tar_options="--sort=name --mtime=@$SOURCE_DATE_EPOCH --numeric-owner --no-recursion"
# shellcheck disable=SC2086 # words
{
	tar -C "$work/add" $tar_options --owner=0 --group=0 -rf "$work/layer" ./etc/passwd ./etc/group ./models
	tar -C "$work/own" $tar_options --owner=$uid --group=$uid -rf "$work/layer" ./run/txda ./var/cache/txda
}

# blob FILE - put it among the image's blobs; prints its digest.
blob() {
	digest=$(sha256sum "$1" | cut -d ' ' -f 1)
	mv "$1" "$work/image/blobs/sha256/$digest"
	echo "$digest"
}

# size DIGEST - its bytes.
size() {
	stat -c %s "$work/image/blobs/sha256/$1"
}

contents=$(sha256sum "$work/layer" | cut -d ' ' -f 1)
gzip -n "$work/layer"
layer=$(blob "$work/layer.gz")
# OCI has no health check: Docker takes it from here, others are told by whoever starts the container.
cat >"$work/config" <<END
{
  "created": "$created",
  "architecture": "$architecture",
  "os": "linux",
  "config": {
    "User": "$uid:$uid",
    "Env": ["PATH=/usr/bin:/bin", "TXDA_SOCKET=/run/txda/txda.sock"],
    "Entrypoint": ["txdad", "--socket", "/run/txda/txda.sock", "--cache-dir", "/var/cache/txda"],
    "Volumes": {"/run/txda": {}, "/var/cache/txda": {}},
    "StopSignal": "SIGTERM",
    "Healthcheck": {"Test": ["CMD", "txdactl", "health"], "Interval": 10000000000, "Timeout": 5000000000, "StartPeriod": 300000000000},
    "Labels": {"org.opencontainers.image.title": "txdad", "org.opencontainers.image.version": "$version"}
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$contents"]},
  "history": [{"created": "$created", "created_by": "packaging/container/image.sh"}]
}
END
config=$(blob "$work/config")
cat >"$work/manifest" <<END
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.manifest.v1+json",
  "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:$config", "size": $(size "$config")},
  "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": "sha256:$layer", "size": $(size "$layer")}]
}
END
manifest=$(blob "$work/manifest")
echo '{"imageLayoutVersion": "1.0.0"}' >"$work/image/oci-layout"
cat >"$work/image/index.json" <<END
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.index.v1+json",
  "manifests": [{
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "digest": "sha256:$manifest",
    "size": $(size "$manifest"),
    "platform": {"architecture": "$architecture", "os": "linux"},
    "annotations": {"org.opencontainers.image.ref.name": "$tag", "io.containerd.image.name": "$tag"}
  }]
}
END
find "$work/image" -type d -exec chmod 755 {} +
chmod 644 "$work"/image/*.json "$work/image/oci-layout" "$work"/image/blobs/sha256/*
tar -C "$work/image" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar \
	-cf "$output" .
echo "$output: $tag, $(($(stat -c %s "$output") / 1000000)) MB"
