#!/bin/sh
# SPDX-License-Identifier: MIT
#
# bench.sh [-k K] [-w WEIGHTS] [-j N] - what the way through the driver costs, on kernel K (newest): submission,
# copies and decoding in a virtual machine, and the same programs on the host with the chip in their own
# process. The figures are ratios: processors of the machine are emulated where KVM is not to be had, those
# of the chips never are. With -j the chip computes with N threads only: on two processors -j 1 leaves one
# to the emulated ones, which otherwise take time from the chip.
set -eu
# shellcheck source=tests/vm/rig.sh
. "$(dirname "$0")/rig.sh"

k=newest weights=w8 cores=
while getopts k:w:j: option; do
	case $option in
	k) k=$OPTARG ;;
	w) weights=$OPTARG ;;
	j) cores=$OPTARG ;;
	*)
		sed -n '4,9s/^# \{0,1\}//p' "$0"
		exit 2
		;;
	esac
done
sh "$top/tests/vm/prepare.sh" root base
sh "$top/tests/vm/prepare.sh" kernel "$k"
sh "$top/tests/vm/prepare.sh" stage full "$k"
stage=$vm/stage bin=$B/check/bin
work=$(mktemp -d "${TMPDIR:-/tmp}/txda-vm-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

here() {
	TXDA_CMODEL=${cores:+cores=$cores} "$bin/txda-bench" "$@"
}

decode="--prompt 16 --gen 64 --batch 1,16"
case_dir=$vm/bench/qwen3-0.6b-$weights
if [ ! -e "$case_dir/model_info.json" ]; then
	mkdir -p "$vm/bench"
	"$bin/txda-compile" --synthetic qwen3-0.6b --weights "$weights" -q -o "$case_dir"
fi
image "$case_dir" "$work/case.img"

# In between two runs of the host: what the machine does changes from minute to minute.
say "in one process, on the host"
here device
# shellcheck disable=SC2086 # words
here --json $decode "$stage/cases/demo-tp1" "$case_dir" >"$work/before"
say "through the driver, on $k"
sh "$top/tests/vm/run.sh" -k "$k" -n 1 -l 900 ${cores:+-j "$cores"} \
	-q "-drive file=$work/case.img,format=raw,if=none,id=case,readonly=on -device virtio-blk-pci,drive=case" -- "
. /rig/guest/lib.sh
load && wait_for 20 nodes_are 1 || exit 1
mkdir /tmp/case && mount -t squashfs -o ro /dev/vdd /tmp/case || exit 1
export TXDA_BACKEND=drm
txda-bench device
txda-bench --json $decode /t/cases/demo-tp1 /tmp/case" >"$work/guest" 2>"$work/log" || {
	cat "$work/guest" "$work/log" >&2
	die "the machine did not do it"
}
grep -v '^[]{"]' "$work/guest"
# shellcheck disable=SC2086 # words
here --json $decode "$stage/cases/demo-tp1" "$case_dir" >"$work/after"

# results FILE - "MODEL BATCH STEP_MS" a line, of decoding.
results() {
	sed -n 's/.*"model":"\([^"]*\)".*"what":"decode","batch":\([0-9]*\),.*"step_ms":\([0-9.]*\).*/\1 \2 \3/p' "$1"
}
results "$work/before" >"$work/a"
results "$work/guest" >"$work/b"
results "$work/after" >"$work/c"
printf '\n%-28s %6s %16s %16s %8s\n' decode batch 'in-process' 'through driver' ratio
paste -d ' ' "$work/a" "$work/b" "$work/c" | awk 'NF == 9 {
	host = ($3 + $9) / 2
	printf "%-28s %6d %13.3f ms %13.3f ms %7.2f\n", $1, $2, host, $6, host / $6
	n++
}
END { exit n ? 0 : 1 }' || die "no figures"
