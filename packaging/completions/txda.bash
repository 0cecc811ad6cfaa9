# SPDX-License-Identifier: MIT
# bash completion of txdad and the txda tools. Options and subcommands come from each program's own
# --help, so this never lags behind them.

_txda() {
	local cur=$2 prev=$3 help
	case $prev in
	--socket | --config | --control | --csv | -o | --output)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--cache-dir | --dir | --socket-dir | --ctl)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--load)
		mapfile -t COMPREPLY < <(compgen -W "start demand" -- "$cur")
		return
		;;
	--when-idle)
		mapfile -t COMPREPLY < <(compgen -W "unload sleep" -- "$cur")
		return
		;;
	--allow-user | --model-user | --admin-user)
		mapfile -t COMPREPLY < <(compgen -u -- "$cur")
		return
		;;
	--allow-group | --model-group | --admin-group | --socket-group)
		mapfile -t COMPREPLY < <(compgen -g -- "$cur")
		return
		;;
	--log-level)
		mapfile -t COMPREPLY < <(compgen -W "error warning info debug" -- "$cur")
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
	if [[ ${1##*/} == txdactl && $prev =~ ^(load|wake|unload|sleep|pin|unpin|plan)$ ]]; then
		help=$("$1" models 2>/dev/null | sed -n '2,$s/ .*//p')
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	if [[ ${1##*/} == txdactl && $prev == cancel ]]; then
		help=$("$1" requests 2>/dev/null | sed -n '2,$s/ .*//p')
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	if [[ ${1##*/} == txda-smi || ${1##*/} == txdactl ]] && [[ $COMP_CWORD -eq 1 ]]; then
		help=$("$1" --help 2>/dev/null | sed -n "s/^ *${1##*/} \([a-z][a-z]*\) .*/\1/p")
		mapfile -t COMPREPLY < <(compgen -W "$help" -- "$cur")
		return
	fi
	compopt -o filenames
	mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}
complete -F _txda txdad txdactl txda-run txda-smi txda-compile txda-verify txda-bench txda-holder txda-cmodel txda-mkfw
