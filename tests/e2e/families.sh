#!/bin/sh
# SPDX-License-Identifier: MIT
#
# families.sh - gpt-oss and Qwen3.5 through the npm client `openai`: chat, reasoning, tools, structured output.
set -eu

. "$(dirname "$0")/node.sh"
. "$(dirname "$0")/lib.sh"

node "$(dirname "$0")/families.mjs" make "$FIXTURES" "$tmp" || fail "families.mjs make: exit status $?"
start --model "gptoss=$tmp/gptoss" --model "qwen35=$tmp/qwen35"
node "$(dirname "$0")/families.mjs" ask "$socket" || fail "families.mjs: exit status $?"
conclude
