#!/bin/sh
# SPDX-License-Identifier: MIT
#
# run.sh ARCHIVE DIR - the container image in ARCHIVE, in the empty directory DIR, does what packaging/container/compose.yaml says: its
# daemon with the demo model, and a client of its own; and it answers curl on the shared socket. What an engine does is done by hand:
# read-only root, volumes, one user without capabilities.
#
# To be called as root (of a user namespace will do) in namespaces of its own for mounts, processes and network, see scripts/bare.sh.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
archive=$1
mkdir "$2/image" "$2/root"
cd "$2"
tar -C image -xf "$archive"
python3 "$top/tests/container/files.py" "$top" image | tee settings
user='' environment='' daemon='' health='' client_user='' client='' layer=''
. ./settings

tar -C root -xpzf "$layer"
cp -r "$top/tests/models/demo" root/models/
chmod -R a+rX root/models
cd root
mount --bind . .
cd ../root
for volume in run/txda var/cache/txda; do
	mount --bind $volume $volume
done
mount -t proc proc proc
mount -t tmpfs -o mode=1777 tmp tmp
mkdir -p dev
mount -t tmpfs -o mode=755 dev dev
mkdir -m 1777 dev/shm
for device in null zero full random urandom; do
	: >dev/$device
	mount --bind /dev/$device dev/$device
done
mount -o remount,bind,ro .

# contained USER COMMAND - in the container; words as a shell reads them.
contained() {
	eval "exec chroot . env -i $environment setpriv --reuid=${1%:*} --regid=${1#*:} --clear-groups --no-new-privs \
		--inh-caps=-all --bounding-set=-all $2"
}

(contained "$user" "$daemon") &
pid=$!
until (contained "$user" "$health"); do
	kill -0 $pid
	sleep 0.2
done
curl -fsS --unix-socket run/txda/txda.sock http://localhost/v1/completions -H 'Content-Type: application/json' \
	-d '{"model": "demo", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0}' | tee ../answer
grep -E -q '"text": ?"[^"]' ../answer
echo
echo "@ok the image's daemon answers curl on the shared socket"
# A tale by chance may be a full stop.
(contained "$client_user" "$client --temperature 0") | tee ../tale
grep -q '[a-z]' ../tale
echo "@ok its client gets a tale"
if (contained "$client_user" "txdactl unload demo") >../unload 2>&1; then
	echo "the client unloads the model" >&2
	exit 1
fi
cat ../unload
grep -q administrator ../unload
echo "@ok its client is no administrator"
kill $pid
wait $pid
