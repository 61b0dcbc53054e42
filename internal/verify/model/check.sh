#!/bin/sh
# check.sh [short]: has spin search the models, and prints what it found. It fails if a result is
# not the expected one. If no rule is broken, that is no error. If a rule is broken, it is a
# counterexample to what the rule guarantees. An incomplete search without an error is a failure.
set -u
cd "$(dirname "$0")" || exit 1
here=$PWD
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
failed=0

# found prints what spin has found: correct, or what does not hold.
found() {
	case $(grep '^pan:1: ' out) in
	*'acceptance cycle'*) echo cycle ;;                       # the key is not free again
	*'assertion violated  !('*) echo two ;;                   # two believe at once
	*'assertion violated (holder!=i)'*) echo left ;;          # a claim that is over has left its key taken
	*'assertion violated (said||(holder!=i))'*) echo own ;;   # the holder of the key itself finds it busy
	*'assertion violated (p[i].fence>=seen)'*) echo stale ;;  # a resource accepts a lower fence than before
	*'assertion violated (fence<=p[i].fence)'*) echo claim ;; # the store has a higher fence for a claim than its holder
	*'assertion violated '*'fence>'*) echo fence ;;           # a new holder has no higher fence than those before
	*'assertion violated (waited<='*) echo starved ;;         # a writer waits while readers come and go
	*'assertion violated (kept<='*) echo kept ;;              # readers are kept away for a writer that has gone
	*'assertion violated 0'*) echo two ;;                     # readers and a writer hold the key at once
	?*) echo else ;;
	'')
		if grep -qE 'max search depth too small|Search not completed' out || ! grep -q 'errors: 0$' out; then
			echo incomplete
		else
			echo correct
		fi
		;;
	esac
}

# check MODEL EXPECTED FLAGS...; EXPECTED is what found prints.
check() {
	model=$1 expected=$2
	shift 2
	rm -rf "$dir"/* && cd "$dir" && cp "$here/$model.pml" . || exit 1
	how=-DSAFETY cycles=
	case " $* " in *" -DLIVENESS "*) how= cycles=-a ;; esac
	start=$(date +%s)
	# 1500 MB at most, and as deep as it goes.
	if ! spin -a "$@" "$model.pml" >out 2>&1 || ! gcc -O2 $how -DCOLLAPSE -DMEMLIM=1500 -o pan pan.c >>out 2>&1; then
		got=broken
	elif ! ./pan $cycles -m1000000 >out 2>&1; then
		got=broken
	else
		got=$(found)
	fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
	verdict=ok
	if [ "$got" != "$expected" ]; then
		verdict=FAILED
		failed=1
	fi
	printf '%-8s %-58s %9s %7s %4ds  %-8s %-10s %s\n' "$model" "$*" "${states:--}" "${depth:--}" "$(($(date +%s) - start))" "$expected" "$got" "$verdict"
	[ $verdict = ok ] || tail -n 20 out
}

printf '%-8s %-58s %9s %7s %5s  %-8s %s\n' model variant states depth time expected got
check lease correct
check lease correct -DLIVENESS
check fence correct -DFORGETS
check wanted correct
check lease two -DBREAK_VALID_FROM_THE_ANSWER
check lease two -DBREAK_RELEASE_OF_ANYBODYS
check lease left -DBREAK_NO_CLEAN_UP
check fence fence -DBREAK_FENCE_ONLY_INCREMENTS -DFORGETS
[ "${1:-}" = short ] && exit $failed

check lease correct -DFORGETS
check lease correct -DTTL=4
check fence correct
check fence correct -DSTEPS_BACK -DCLOCK_ENDS=9
check fence correct -DFAILS_OVER
check fence correct -DFAILS_OVER -DFORGETS
check quorum correct
check quorum correct -DFORGETS=2
check quorum correct -DFORGETS=2 -DFLUSHED
check majority correct
check majority correct -DFORGETS=3
# Rule 1.
check lease two -DBREAK_NO_MARGIN
check majority two -DBREAK_VALID_FROM_THE_ANSWER
check lease two -DBREAK_USE_OF_WHAT_CAME_TOO_LATE
# Rule 2.
check lease two -DBREAK_NO_DEADLINE
check lease two -DBREAK_SUSPENSION_UNNOTICED
# Rule 3.
check lease two -DBREAK_NOT_YOURS_IS_NO_END -DFORGETS
check lease two -DBREAK_RENEWAL_OF_ANYBODYS -DFORGETS
check lease left -DBREAK_RENEWAL_TAKES_THE_KEY
# Rule 4.
check lease cycle -DBREAK_RENEWAL_AFTER_RELEASE -DLIVENESS
check lease two -DBREAK_BELIEF_WHILE_RELEASING
# Rule 5.
check lease left -DBREAK_CLEAN_UP_BEFORE_IT_SETTLES
check lease left -DBREAK_NO_CLEAN_UP_OF_WHAT_WAS_LOST
check lease two -DBREAK_ONE_ID_FOR_ALL_CLAIMS
check lease own -DBREAK_REPEATED_CLAIM_IS_BUSY
check fence claim -DBREAK_REPEATED_CLAIM_GETS_ANOTHER_FENCE
check fence fence -DBREAK_REPEATED_CLAIM_SETS_ASIDE
# Rule 9.
check fence fence -DBREAK_FENCE_IS_THE_CLOCK -DSTEPS_BACK
check fence fence -DBREAK_NO_JUMP -DFORGETS
check fence fence -DBREAK_RESERVES_WITHOUT_BOUND -DFORGETS
check fence stale -DBREAK_RESOURCE_ACCEPTS_LOWER_FENCES
check quorum fence -DBREAK_FENCE_IS_NOT_RAISED
check quorum fence -DBREAK_FENCE_OF_ONE_NODE
check quorum fence -DBREAK_QUORUM_OF_HALF
# Rule 13.
check lease two -DBREAK_PASSED_ON_AS_IF_NEW
check lease cycle -DBREAK_PASSED_ON_WITHOUT_END -DLIVENESS
check fence fence -DBREAK_NO_FENCES_SET_ASIDE
check fence fence -DBREAK_PASSED_ON_WITHOUT_A_FENCE
# Section 5, redlock.
check majority two -DBREAK_QUORUM_OF_HALF
check majority two -DBREAK_BACK_BEFORE_A_TTL -DFORGETS
# Rule 27.
check wanted starved -DBREAK_WANTED_IGNORED
check wanted starved -DBREAK_ASKS_TOO_LATE
check wanted kept -DBREAK_WANTED_WITHOUT_END
check wanted two -DBREAK_READERS_JOIN_A_WRITER
# What the design does not promise.
check majority two -DLIMIT_BACK_AT_ONCE -DFORGETS
check quorum fence -DLIMIT_FORGETS_BEHIND_THE_CLOCKS -DFORGETS
check fence fence -DLIMIT_FAILS_OVER_AT_ONCE -DFAILS_OVER
check fence fence -DSTEPS_BACK -DFORGETS
check fence fence -DSTEPS_BACK -DFAILS_OVER
exit $failed
