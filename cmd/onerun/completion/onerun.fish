# fish completion of onerun: onerun completion fish | source
function __onerun_complete
	set -l words (commandline -opc)
	set -l current (commandline -ct)
	for line in (onerun __complete $words[2..-1] "$current" 2>/dev/null)
		switch $line
			case ':files'
				__fish_complete_path $current
			case ':command*'
				__fish_complete_subcommand --fcs-skip=(string replace ':command ' '' -- $line)
			case '*'
				echo $line
		end
	end
end
complete -c onerun -f -a '(__onerun_complete)'
