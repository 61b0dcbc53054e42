# bash completion of onerun: source <(onerun completion bash)
_onerun() {
	local line cur=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:files)
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -f -- "${cur#=}")
			;;
		:command*)
			if declare -F _comp_command_offset >/dev/null; then
				_comp_command_offset "${line#:command }"
			elif declare -F _command_offset >/dev/null; then
				_command_offset "${line#:command }"
			elif [ "${line#:command }" = "$COMP_CWORD" ]; then
				mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			else
				compopt -o filenames
				mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			fi
			;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done < <(onerun __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _onerun onerun
