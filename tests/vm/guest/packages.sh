#!/bin/sh
# SPDX-License-Identifier: MIT
#
# packages.sh - in a machine that has txda-dkms: what ../packages.sh says. Packages are in /t/debs, those of
# an older version in /t/older.
. /rig/guest/lib.sh
export DEBIAN_FRONTEND=noninteractive
s=/run/txda/txda.sock
passed() {
	echo "@ok $1"
}
failed() {
	systemctl --no-pager status txdad.socket txdad.service
	journalctl -q --no-pager -u txdad.service
	fail "$@"
}
of_unit() {
	systemctl show -P "$1" txdad.service
}
active() {
	[ "$(of_unit ActiveState)" = active ]
}
get() {
	curl -fsS --max-time 60 --unix-socket $s "http://localhost/$1"
}
answers() {
	get health >/dev/null 2>&1
}
# as USER COMMAND
as() {
	su "$1" -s /bin/sh -c "cd /tmp && $2"
}
# ask FILE BODY - a completion, as the user tester, who asks again when told that the model is being loaded (503).
ask() {
	as tester "curl -fsS -N --retry 60 --retry-delay 1 --max-time 300 --unix-socket $s \
		-H 'Content-Type: application/json' -d '$2' http://localhost/v1/completions" >"$1" 2>/tmp/curl.err
}

# ---- installation, by apt, without a network
dkms status txda -k "$(uname -r)" | grep installed || failed "DKMS has no module for this kernel"
case $(modinfo -F filename txda) in
*/updates/dkms/txda.ko*) ;;
*) failed "not the module that DKMS built: $(modinfo -F filename txda)" ;;
esac
! loaded || failed "the module is loaded, and there is no chip"
apt-get install -q -y /t/older/*.deb || failed "apt-get install"
[ "$(systemctl is-active txdad.socket)" = active ] || failed "no socket"
! active || failed "the daemon runs, and there is neither chip nor model"
[ "$(stat -c '%U:%G %a' $s)" = "root:txda 660" ] || failed "$(stat $s)"
passed "apt-get install on a machine with systemd"

# ---- the chip
usermod -aG render,txda tester || failed "tester"
useradd stranger || failed "stranger"
printf 'model = demo=/t/models/demo\nmax-num-seqs = 4\n' >>/etc/txda/txdad.conf
cp /etc/txda/txdad.conf /tmp/settings
plug 0 || failed "the chip does not come"
wait_for 60 loaded || failed "udev does not load the module"
wait_for 60 nodes_are 1 || failed "no node"
wait_for 120 active || failed "the chip does not start the daemon"
[ "$(stat -c '%U:%G %a' /dev/accel/accel0)" = "root:render 660" ] || failed "$(stat /dev/accel/accel0)"
wait_for 300 answers || failed "the daemon does not answer"
passed "a chip that is plugged in loads the module and starts the daemon"

as tester "txda-run --model demo --raw --temperature 0 -n 12 'Once upon a time'" >/tmp/tale || failed "no answer for who is in the group"
grep '[a-z]' /tmp/tale || failed "an empty answer"
as tester txda-smi | grep TX8 || failed "txda-smi shows no chip"
passed "who is in the group gets an answer"
! as stranger "txda-run --model demo hello" >/tmp/refusal 2>&1 || failed "an answer for who is not in the group"
cat /tmp/refusal
grep -q $s /tmp/refusal || failed "the refusal does not say what it is about"
! as stranger "true <>/dev/accel/accel0" || failed "the chip is open to all"
passed "who is not in the group is refused"

# ---- upgrade while the daemon serves
wait_for 60 sh -c "curl -fsS --unix-socket $s http://localhost/v1/models/demo | grep -q '\"adopted\":false'" || failed "$(get v1/models/demo)"
pid=$(of_unit MainPID)
inode=$(stat -c %i $s)
(
	until [ -e /tmp/enough ]; do
		ask /tmp/one '{"model": "demo", "prompt": "Once", "max_tokens": 8, "temperature": 0}' || cat /tmp/curl.err /tmp/one >>/tmp/refused
		echo >>/tmp/asked
	done
) &
loop=$!
more_asked() {
	[ "$(wc -l </tmp/asked)" -gt "$1" ]
}
wait_for 60 more_asked 0 2>/dev/null || failed "no client"
apt-get install -q -y /t/debs/libtxda0_*.deb /t/debs/txda-tools_*.deb /t/debs/txdad_*.deb || failed "upgrade"
new() {
	[ "$(of_unit MainPID)" != "$pid" ]
}
wait_for 60 new || failed "the daemon was not started again"
wait_for 120 answers || failed "no answer after the upgrade"
get v1/models/demo | tee /tmp/model
grep -q '"adopted":true' /tmp/model || failed "the weights were loaded again"
asked=$(wc -l </tmp/asked)
wait_for 120 more_asked $((asked + 1)) || failed "the client does not go on"
touch /tmp/enough
wait $loop
if [ -e /tmp/refused ]; then
	cat /tmp/refused
	failed "a client was turned away"
fi
[ "$(stat -c %i $s)" = "$inode" ] || failed "another socket"
cmp /etc/txda/txdad.conf /tmp/settings || failed "other settings"
dpkg-query -W -f '${Package} ${Version}\n' txdad txda-tools libtxda0 txda-dkms
[ "$(dpkg-query -W -f '${Version}' txdad)" != 0.0.0 ] || failed "not upgraded"
passed "an upgrade restarts the daemon, keeps weights, socket and settings, and turns no client away"

# ---- removal while the daemon serves
ask /tmp/stream '{"model": "demo", "prompt": "Once", "max_tokens": 1500, "temperature": 0, "ignore_eos": true, "stream": true}' &
stream=$!
streams() {
	[ "$(wc -l </tmp/stream)" -gt 10 ]
}
wait_for 60 streams || failed "no stream"
apt-get remove -q -y txdad txda-tools txda-dkms libtxda0 || failed "removal"
wait $stream
tail -n 3 /tmp/stream
grep -q -e '"finish_reason":"' -e '"error"' /tmp/stream || failed "the stream ends without a word"
! pidof txdad || failed "the daemon is still there"
[ ! -e /run/txda ] || failed "left: $(find /run/txda)"
! systemctl is-active txdad.socket || failed "the socket is still there"
! modinfo txda || failed "the module is still there"
cmp /etc/txda/txdad.conf /tmp/settings || failed "removal takes the settings"
unload || failed "the module cannot be unloaded"
dmesg | grep -E -f /rig/guest/klog-bad | grep -v -E -f /rig/guest/klog-allowed >/tmp/complaints
[ ! -s /tmp/complaints ] || failed "kernel: $(cat /tmp/complaints)"
passed "removal while the daemon serves ends it, and its streams with a word"
apt-get purge -q -y txdad txda-tools txda-dkms libtxda0 || failed "purge"
find / -xdev -name '*txda*' ! -path '/t/*' ! -path '/rig/*' ! -path '/run/txda.*' ! -name 'txda-vm*' ! -path '/var/log/*' \
	! -path '/proc/*' ! -path '/tmp/txda*' | tee /tmp/left
[ ! -s /tmp/left ] || failed "purge leaves files"
passed "purge leaves no file of the name"
