/*
 * Fences: rules 9 and 13 of the design, and what a resource does with them. There is no time in it:
 * a lease may end in the store at any moment, and its holder notices that late or never. lease.pml
 * shows who may hold a lease, and when.
 *
 * What must hold:
 *   - each new holder has a higher fence than all holders before, and no fence has two holders;
 *   - the resource accepts writes with fences that never decrease;
 *   - it never refuses a process that holds the key in the store;
 *   - the store has no higher fence for a claim than its holder.
 *
 * With -DFORGETS the store loses all that it knows, at any moment: a flush, or a restart without
 * data. With -DFAILS_OVER it loses the newest of it, and is away until its clock has moved by
 * AHEAD. With -DSTEPS_BACK its clock steps back while it remembers.
 * -DLIMIT_... takes an assumption away, and spin shows what the design does not promise.
 *
 * -DBREAK_... breaks a rule, and spin must find how that goes wrong.
 */

#define CLIENTS 2
#define NOBODY CLIENTS
#define AHEAD 4 /* by how much the first fence of a store is ahead of its clock */
#ifndef CLOCK_ENDS
#define CLOCK_ENDS 12 /* a grant takes some time, so this bounds grants, too */
#endif
#ifndef FENCES_END
#define FENCES_END (2 * CLOCK_ENDS + AHEAD) /* and this, if the clock steps back */
#endif
#define ASIDE 2 /* how many fences a claim asks to reserve for hand-offs */

/* The store. */
byte holder = NOBODY;
byte fence;     /* the holder's, as it was granted */
byte last;      /* the counter, which covers what is issued and reserved; 0 if there is none */
byte clock = 1; /* as a fence */

#define asks(i) (!p[i].fence && holder == NOBODY && clock < CLOCK_ENDS && last < FENCES_END)

/* A process has a lease if fence is not 0, as far as it knows. */
typedef process {
	byte fence;
	byte aside /* how many more fences it may hand the lease off under */
};
process p[CLIENTS];

byte seen; /* the highest fence that the resource has accepted */

/* What is only there to be checked. */
byte most;   /* the highest fence that was used */
byte issued; /* the highest fence that was issued or reserved */

/* new_fence is what every grant does, in the same script. */
inline new_fence() {
#if defined(BREAK_FENCE_ONLY_INCREMENTS)
	fence = last + 1;
#elif defined(BREAK_FENCE_IS_THE_CLOCK)
	fence = clock;
#elif defined(BREAK_NO_JUMP)
	fence = (clock > last -> clock : last + 1);
#else
	fence = (!last -> clock + AHEAD : (clock > last -> clock : last + 1));
#endif
}

/* reserved is how many of some fences the store reserves above the one that it grants: none that
 * is more than half of AHEAD ahead of its clock. */
#ifdef BREAK_RESERVES_WITHOUT_BOUND
#define reserved(asked) (asked)
#else
#define room (clock + AHEAD / 2 - fence)
#define reserved(asked) (room < 0 -> 0 : (room < asked -> room : asked))
#endif

/* grants has the store grant the key. It must not grant what the other process may still hand its
 * lease off under. */
inline grants(i, asked) {
	new_fence();
	assert(fence > most);
	assert(!p[1 - i].aside || fence > p[1 - i].fence + p[1 - i].aside);
	most = fence;
	holder = i;
	p[i].aside = reserved(asked);
	issued = (fence + p[i].aside > issued -> fence + p[i].aside : issued);
#ifdef BREAK_NO_FENCES_SET_ASIDE
	last = fence;
#else
	last = (fence + p[i].aside > last -> fence + p[i].aside : last);
#endif
	clock++ /* it takes its time */
}

proctype client(byte i) {
end:	do
	/* A grant is answered, or the answer is lost. */
	:: d_step { asks(i) -> grants(i, ASIDE); p[i].fence = fence }
	:: d_step { asks(i) -> grants(i, 0); p[i].fence = fence }
	:: d_step { asks(i) -> grants(i, ASIDE); p[i].aside = 0 }
	/* The same claim asks again, and has a lease already. It reserves nothing then (rule 5). */
	:: d_step { !p[i].fence && holder == i ->
		p[i].fence = fence;
#ifdef BREAK_REPEATED_CLAIM_SETS_ASIDE
		p[i].aside = ASIDE
#endif
		}
#ifdef BREAK_REPEATED_CLAIM_GETS_ANOTHER_FENCE
	:: d_step { p[i].fence && holder == i && clock < CLOCK_ENDS ->
		new_fence(); clock++; last = fence; assert(fence <= p[i].fence) }
#endif

	/* The lease is handed off in the process (rule 13), under the next reserved fence. */
	:: d_step { p[i].fence && p[i].aside ->
		p[i].aside--;
#ifndef BREAK_PASSED_ON_WITHOUT_A_FENCE
		p[i].fence++;
#endif
		assert(holder != i || p[i].fence > most);
		most = (p[i].fence > most -> p[i].fence : most) }

	/* It is released, or it was lost, and its process has noticed. */
	:: d_step { p[i].fence ->
		if
		:: holder == i -> holder = NOBODY; fence = 0
		:: else
		fi;
		p[i].fence = 0; p[i].aside = 0 }

	/* It writes. It may have been paused before that for so long that it has lost the lease. */
	:: d_step { p[i].fence ->
		if
#ifdef BREAK_RESOURCE_ACCEPTS_LOWER_FENCES
		:: true ->
#else
		:: p[i].fence >= seen ->
#endif
			assert(p[i].fence >= seen);
			seen = p[i].fence
		:: else -> assert(holder != i)
		fi }
	od
}

#ifdef LIMIT_FAILS_OVER_AT_ONCE
#define away 0
#else
#define away AHEAD /* for how long a store is away that fails over */
#endif

active proctype store() {
end:	do
	/* The lease ends, without a notification. */
	:: d_step { holder != NOBODY -> holder = NOBODY; fence = 0 }
	:: clock < CLOCK_ENDS -> clock++
#ifdef STEPS_BACK
	/* It remembers. A store that forgets before its clock has caught up is not covered. */
	:: clock > 1 -> clock--
#endif
#ifdef FORGETS
	/* It takes no time, and may come between any two hand-offs. */
	:: d_step { last -> holder = NOBODY; fence = 0; last = 0 }
#endif
#ifdef FAILS_OVER
	/* Another server takes over. Its counter is any that there was before. */
	:: atomic { issued && clock + away < CLOCK_ENDS ->
		holder = NOBODY; fence = 0; last = issued; clock = clock + away;
		do
		:: last > 1 -> last--
		:: break
		od }
#endif
	od
}

init {
	atomic {
		run client(0);
		run client(1)
	}
}
