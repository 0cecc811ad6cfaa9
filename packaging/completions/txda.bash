# SPDX-License-Identifier: MIT
# bash completion of txdad and the txda tools. Options and subcommands come from each program's own
# --help, so this never lags behind them.

_txda() {
	local cur=$2 prev=$3 help
	case $prev in
	--socket | --config | -o | --output)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--cache-dir)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--weights)
		mapfile -t COMPREPLY < <(compgen -W "keep bf16 w8 w4" -- "$cur")
		return
		;;
	esac
	if [[ $cur == -* ]]; then
		help=$("$1" --help 2>/dev/null | grep -oE -- '(^|[ ,[])--[a-z][a-z-]*' | tr -d ' ,[' | sort -u)
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	if [[ ${1##*/} == txda-smi && $COMP_CWORD -eq 1 ]]; then
		help=$("$1" --help 2>/dev/null | sed -n 's/^ *txda-smi \([a-z][a-z]*\) .*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _txda txdad txda-run txda-smi txda-compile txda-verify txda-bench
