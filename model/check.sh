#!/bin/sh
# check.sh [short]: has spin search the models and says what it found. Fails where that is not what is expected: no error where the
# rules stand, and a counterexample for each that is broken. A search that is not complete counts as a failure.
set -u
cd "$(dirname "$0")" || exit 1
here=$PWD
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
failed=0

# check MODEL EXPECTED FLAGS...; EXPECTED is correct or wrong.
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
	elif grep -qE 'max search depth too small|Search not completed|out of memory|memory limit' out && ! ls ./*.trail >/dev/null 2>&1; then
		got=incomplete
	elif grep -q 'errors: 0' out; then
		got=correct
	elif ls ./*.trail >/dev/null 2>&1; then
		got=wrong
	else
		got=broken
	fi
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
	depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
	verdict=ok
	if [ "$got" != "$expected" ]; then
		verdict=FAILED
		failed=1
	fi
	printf '%-7s %-58s %9s %7s %4ds  %-8s %-10s %s\n' "$model" "$*" "${states:--}" "${depth:--}" "$(($(date +%s) - start))" "$expected" "$got" "$verdict"
	[ $verdict = ok ] || tail -n 20 out
}

printf '%-7s %-58s %9s %7s %5s  %-8s %s\n' model variant states depth time expected got
check lease correct
check lease correct -DLIVENESS
check fence correct -DFORGETS
check lease wrong -DBREAK_VALID_FROM_THE_ANSWER
check lease wrong -DBREAK_RELEASE_OF_ANYBODYS
check lease wrong -DBREAK_NO_CLEAN_UP
check fence wrong -DBREAK_FENCE_ONLY_INCREMENTS -DFORGETS
[ "${1:-}" = short ] && exit $failed

check lease correct -DFORGETS
check lease correct -DTTL=4
check fence correct
check fence correct -DSTEPS_BACK
check quorum correct
# Rule 1.
check lease wrong -DBREAK_NO_MARGIN
check lease wrong -DBREAK_USE_OF_WHAT_CAME_TOO_LATE
# Rule 2.
check lease wrong -DBREAK_NO_DEADLINE
check lease wrong -DBREAK_SUSPENSION_UNNOTICED
# Rule 3.
check lease wrong -DBREAK_NOT_YOURS_IS_NO_END -DFORGETS
check lease wrong -DBREAK_RENEWAL_OF_ANYBODYS -DFORGETS
check lease wrong -DBREAK_RENEWAL_TAKES_THE_KEY
# Rule 4.
check lease wrong -DBREAK_RENEWAL_AFTER_RELEASE -DLIVENESS
check lease wrong -DBREAK_BELIEF_WHILE_RELEASING
# Rule 5.
check lease wrong -DBREAK_CLEAN_UP_BEFORE_IT_SETTLES
check lease wrong -DBREAK_NO_CLEAN_UP_OF_WHAT_WAS_LOST
check lease wrong -DBREAK_ONE_ID_FOR_ALL_CLAIMS
check lease wrong -DBREAK_REPEATED_CLAIM_IS_BUSY
check fence wrong -DBREAK_REPEATED_CLAIM_GETS_ANOTHER_FENCE
check fence wrong -DBREAK_REPEATED_CLAIM_SETS_ASIDE
# Rule 9.
check fence wrong -DBREAK_FENCE_IS_THE_CLOCK -DSTEPS_BACK
check fence wrong -DBREAK_RESOURCE_ACCEPTS_LOWER_FENCES
check quorum wrong -DBREAK_FENCE_IS_NOT_RAISED
check quorum wrong -DBREAK_FENCE_OF_ONE_NODE
check quorum wrong -DBREAK_QUORUM_OF_HALF
# Rule 13.
check lease wrong -DBREAK_PASSED_ON_AS_IF_NEW
check lease wrong -DBREAK_PASSED_ON_WITHOUT_END -DLIVENESS
check fence wrong -DBREAK_NO_FENCES_SET_ASIDE
check fence wrong -DBREAK_PASSED_ON_BEFORE_THE_CLOCK -DFORGETS
check fence wrong -DBREAK_PASSED_ON_WITHOUT_A_FENCE
# What the design does not promise.
check fence wrong -DLIMIT_FORGETS_AHEAD_OF_THE_CLOCK -DFORGETS
check fence wrong -DLIMIT_FORGETS_IN_A_TURN -DFORGETS
check fence wrong -DSTEPS_BACK -DFORGETS
exit $failed
