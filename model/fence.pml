/*
 * Fences: rules 9 and 13 of the design, and what a resource does with them. There is no time in it: a lease may end in the store at any
 * moment, and its holder learns of that late or never. Who may hold one when is in lease.pml.
 *
 * What must hold:
 *   - each new holder has a higher fence than all before, and no fence has two holders;
 *   - what the resource accepts has fences that never decrease;
 *   - it never refuses who holds the key in the store;
 *   - the store has no higher fence for a claim than its holder.
 *
 * With -DFORGETS the store loses the newest of what it knew, or all, at any moment (a failover, a flush, a restart). With -DSTEPS_BACK
 * its clock does so, while it remembers. Comments there say what is taken for granted; -DLIMIT_... takes that away, and spin shows
 * what the design does not promise.
 *
 * -DBREAK_... breaks a rule, and spin must find how that goes wrong.
 */

#define CLIENTS 2
#define NOBODY CLIENTS
#ifndef CLOCK_ENDS
#define CLOCK_ENDS 7 /* a grant takes some time, so this bounds them, too */
#endif
#ifndef FENCES_END
#define FENCES_END (2 * CLOCK_ENDS) /* and this, where the clock steps back */
#endif
#define ASIDE 2 /* fences set aside for hand-over */

#if defined(FORGETS) && !defined(BREAK_PASSED_ON_BEFORE_THE_CLOCK)
#define clock_has_come_to(number) (clock >= number)
#else
#define clock_has_come_to(number) true /* that only matters to a store that forgets */
#endif

/* The store. */
byte holder = NOBODY;
byte fence;     /* the holder's, as it was granted */
byte last;      /* the counter */
byte clock = 1; /* as a fence */

#define asks(i) (!p[i].fence && holder == NOBODY && clock < CLOCK_ENDS && last < FENCES_END)

/* A process has a lease if fence is not 0, as far as it knows. */
typedef process {
	byte fence;
	byte aside /* how many more it may hand the lease on under */
};
process p[CLIENTS];

byte seen; /* the highest fence that the resource has accepted */

/* What is only there to be checked. */
byte most;  /* the highest fence that was used */
bool ahead; /* the counter was ahead of the clock when a lease was granted, as fences were left over */

/* new_fence is what every grant does, in the same script. */
inline new_fence() {
#if defined(BREAK_FENCE_ONLY_INCREMENTS)
	fence = last + 1;
#elif defined(BREAK_FENCE_IS_THE_CLOCK)
	fence = clock;
#else
	fence = (clock > last -> clock : last + 1);
#endif
	clock++ /* it takes its time */
}

/* grants has the store grant the key. What the other process may still hand its lease on under must not be granted to this one. */
inline grants(i, reserve) {
	ahead = last >= clock;
	new_fence();
	assert(fence > most);
	assert(!p[1 - i].aside || fence > p[1 - i].fence + p[1 - i].aside);
	most = fence;
	holder = i;
#ifdef BREAK_NO_FENCES_SET_ASIDE
	last = fence
#else
	last = (fence + reserve > last -> fence + reserve : last)
#endif
}

proctype client(byte i) {
end:	do
	/* A grant is answered, or the answer is lost. */
	:: d_step { asks(i) -> grants(i, 0); p[i].fence = fence }
	:: d_step { asks(i) -> grants(i, ASIDE); p[i].fence = fence; p[i].aside = ASIDE }
	:: d_step { asks(i) -> grants(i, 0) }
	/* Then it is asked again by the same claim, which has a lease already; nothing is known then of what was set aside (rule 5). */
	:: d_step { !p[i].fence && holder == i ->
		p[i].fence = fence;
#ifdef BREAK_REPEATED_CLAIM_SETS_ASIDE
		p[i].aside = ASIDE
#endif
		}
#ifdef BREAK_REPEATED_CLAIM_GETS_ANOTHER_FENCE
	:: d_step { p[i].fence && holder == i && clock < CLOCK_ENDS -> new_fence(); last = fence; assert(fence <= p[i].fence) }
#endif

	/* The lease passes to another call of the process (rule 13), under one of the fences set aside, when the clock has come to that. */
	:: d_step { p[i].fence && p[i].aside && clock_has_come_to(p[i].fence + 1) ->
		p[i].aside--;
#ifndef BREAK_PASSED_ON_WITHOUT_A_FENCE
		p[i].fence++;
#endif
		assert(holder != i || p[i].fence > most);
		most = (p[i].fence > most -> p[i].fence : most) }

	/* It is given back, or it was lost, and its process has seen that. */
	:: d_step { p[i].fence ->
		if
		:: holder == i -> holder = NOBODY; fence = 0
		:: else
		fi;
		p[i].fence = 0; p[i].aside = 0 }

	/* It writes, and may have been paused before that for so long that it has lost the lease. */
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

/*
 * To forget takes some time. And for some milliseconds, fences that were left over have the counter ahead of the clock, and a process
 * may hand a lease on that was forgotten, under fences that the clock has passed. It is taken for granted that nothing is forgotten,
 * and granted again, in those.
 */
#ifdef LIMIT_FORGETS_AHEAD_OF_THE_CLOCK
#define far_ahead false
#else
#define far_ahead (ahead && most > clock)
#endif
#ifdef LIMIT_FORGETS_IN_A_TURN
#define in_a_turn false
#else
#define in_a_turn (p[0].aside || p[1].aside)
#endif

active proctype store() {
end:	do
	/* The lease ends, and nobody is told. */
	:: d_step { holder != NOBODY -> holder = NOBODY; fence = 0 }
	:: clock < CLOCK_ENDS -> clock++
#ifdef STEPS_BACK
	/* It remembers. What steps back, and forgets before its clock has caught up, is not covered: LIMIT_..., with both. */
	:: clock > 1 -> clock--
#endif
#ifdef FORGETS
	:: atomic { last && clock < CLOCK_ENDS && !far_ahead && !in_a_turn ->
		holder = NOBODY; fence = 0; clock++;
		do
		:: last -> last--
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
