/*
 * Who believes to hold a lease, and when: rules 1 to 6 and 13 of the design, over a network that
 * delays, reorders, repeats and loses. Fences are in fence.pml and quorum.pml. How to run it, and
 * what is not in it, is in README.md.
 *
 * What must hold:
 *   - no two processes believe in a lease at once; with -DFORGETS except for one whose lease the
 *     store forgot, until an answer of the store says so;
 *   - a claim that is over, and with it all that was sent for it, has not left its key taken;
 *   - a process that finds the key busy does not hold it itself;
 *   - the key is free again and again, if runs end (-DLIVENESS, with one process).
 *
 * Time goes by in ticks, and what is remembered of it is relative, so there is no horizon: the
 * search is of all that can ever happen. What a process or the store does takes no time;
 * messages, and pauses of a process between any two steps, take any. To believe is what
 * Lease.Valid answers, which looks at the clock; a context says the same as soon as its process
 * gets to run.
 *
 * -DBREAK_... breaks a rule, and spin must find how that goes wrong.
 */

#ifdef LIVENESS
#define CLIENTS 1
#else
#define CLIENTS 2
#endif
#define NOBODY CLIENTS
#ifndef TTL
#define TTL 3
#endif
#define RUN  2 /* how long a function runs at most, with -DLIVENESS */
#define TURN 2 /* for how long a lease is passed on, there */
#ifdef BREAK_NO_MARGIN
#define VALID TTL
#else
#define VALID (TTL - 1) /* less the margin */
#endif

/*
 * The store. It knows a claim by its ID. A process has one claim at a time here, so its number
 * will do.
 */
byte holder = NOBODY;
byte left; /* of the TTL */

mtype = { idle, asking, running, giving };  /* what a process does; giving is to release, and to clean up */
mtype = { silence, waiting, granted };      /* what has come of its call, an acquire or a renewal */

typedef process {
	mtype phase = idle;
	mtype call = silence;
	byte age;     /* of the call: how long ago it was sent, by the process' own clock, as far as that matters */
	byte valid;   /* how long it may believe in the lease yet */
	bool refused; /* a renewal was told that the lease is not its own */
	bool unknown; /* a try to acquire had no answer */
	bool sure;    /* the release was sent when no acquire was left that could come behind it */
	/* What is under way to the store. */
	bool acquire; /* that of the call */
	bool late;    /* acquires for which nobody waits any more: any number of copies, as of what follows */
	bool renew;
	bool release;
#ifdef FORGETS
	bool excused; /* the store has forgotten the claim, and has not said so to who made it */
#endif
#ifdef LIVENESS
	byte ran;     /* since the function began */
	byte turn;    /* since the lease was granted */
	bool hasty;   /* something was sent in this tick */
#endif
};
process p[CLIENTS];

/*
 * The clock of process 0 may be slow, by one tick in the time of a TTL. This is how long it goes
 * right yet.
 */
byte right;

#ifdef BREAK_NO_DEADLINE
#define believes(i) (p[i].phase == running && !p[i].refused)
#else
#define believes(i) (p[i].valid > 0)
#endif

#if CLIENTS == 1
#define both_believe false
#elif defined(FORGETS)
#define both_believe (believes(0) && believes(1) && !p[0].excused && !p[1].excused)
#else
#define both_believe (believes(0) && believes(1))
#endif

/* One request in a tick will do where only what goes on for ever is looked for. */
#ifdef LIVENESS
#define calm(i) !p[i].hasty
#define sends(i) p[i].hasty = true
#else
#define calm(i) true
#define sends(i) skip
#endif

/* call_for begins a call. What is sent is set beside it. */
inline call_for(i) { p[i].call = waiting; p[i].age = 0 }

/* hang_up ends it, with or without an answer. */
inline hang_up(i) { p[i].call = silence; p[i].age = 0 }

/* count counts validity from before the request was sent (rule 1). */
inline count(i) {
#ifdef BREAK_VALID_FROM_THE_ANSWER
	p[i].valid = VALID;
#else
	p[i].valid = VALID - p[i].age;
#endif
}

/* forget ends a claim: the process is as before it. */
inline forget(i) {
	p[i].phase = idle;
	hang_up(i);
	p[i].valid = 0; p[i].refused = false; p[i].unknown = false; p[i].sure = false;
#ifdef FORGETS
	p[i].excused = false;
#endif
#ifdef LIVENESS
	p[i].ran = 0; p[i].turn = 0;
#endif
}

inline clean_up(i) {
	hang_up(i);
	p[i].unknown = true;
	p[i].phase = giving
}

/* give_up ends a claim that was not granted; what came of it may be unknown (rule 5). */
inline give_up(i) {
	if
#ifndef BREAK_NO_CLEAN_UP
	:: p[i].unknown -> clean_up(i)
#endif
	:: else -> forget(i)
	fi
}

/* known is for a claim of which the store says that it holds. */
inline known(i) {
#ifdef FORGETS
	p[i].excused = p[i].excused && !said;
#endif
	skip
}

/* What the store does when an acquire comes. It runs a script as a whole. */
inline store_acquires(i) {
	if
	:: holder == NOBODY -> holder = i; left = TTL; said = true
#ifndef BREAK_REPEATED_CLAIM_IS_BUSY
	:: holder == i -> left = TTL; said = true
#endif
	:: else -> said = false
	fi;
	assert(said || holder != i);
	known(i)
}

/* It is told that the lease is not its own, which is the end of it (rule 3). */
inline not_yours(i) {
	hang_up(i);
#ifndef BREAK_NOT_YOURS_IS_NO_END
	p[i].valid = 0; p[i].refused = true;
#endif
#ifdef FORGETS
	p[i].excused = false;
#endif
	assert(!both_believe)
}

inline store_renews(i) {
	if
#if defined(BREAK_RENEWAL_OF_ANYBODYS)
	:: holder != NOBODY -> left = TTL; said = true
#elif defined(BREAK_RENEWAL_TAKES_THE_KEY)
	:: holder == NOBODY || holder == i -> holder = i; left = TTL; said = true
#else
	:: holder == i -> left = TTL; said = true
#endif
	:: else -> said = false
	fi;
	known(i)
}

inline store_releases(i) {
	if
#ifdef BREAK_RELEASE_OF_ANYBODYS
	:: true -> holder = NOBODY; left = 0
#else
	:: holder == i -> holder = NOBODY; left = 0
	:: else
#endif
	fi
}

bool said; /* always false between two steps */

proctype client(byte i) {
end:	do
	/*
	 * A claim begins. Nothing of the last one is under way any more, which stands for an ID of
	 * its own.
	 */
	:: d_step { p[i].phase == idle && calm(i) &&
#ifndef BREAK_ONE_ID_FOR_ALL_CLAIMS
			!p[i].late && !p[i].renew && !p[i].release ->
		assert(holder != i);
#else
			!p[i].late && !p[i].renew ->
#endif
		p[i].phase = asking; call_for(i); p[i].acquire = true; sends(i) }

	/*
	 * An acquire comes to the store. A refusal comes back at once or never: how long it takes
	 * makes no difference.
	 */
	:: atomic { p[i].acquire ->
		p[i].acquire = false;
		store_acquires(i);
		if
		:: said -> p[i].call = granted
		:: !said -> give_up(i)
		:: !said
		fi;
		said = false }
	:: d_step { p[i].late ->
		store_acquires(i);
#ifdef LIVENESS
		p[i].late = false;
#endif
		said = false }

	/* The grant comes back. If it comes too late, it is of no use, and is released (rule 1). */
	:: d_step { p[i].phase == asking && p[i].call == granted ->
		count(i);
#ifdef BREAK_USE_OF_WHAT_CAME_TOO_LATE
		p[i].valid = (p[i].valid -> p[i].valid : 1);
#endif
		if
		:: p[i].valid -> hang_up(i); p[i].phase = running; assert(!both_believe)
		:: else -> clean_up(i)
		fi }

	/* No answer comes in time, or the caller leaves. It may be asked again, for the same claim. */
	:: d_step { p[i].phase == asking && p[i].age && !p[i].unknown ->
		p[i].unknown = true; p[i].late = p[i].acquire;
		call_for(i); p[i].acquire = true; sends(i) }
	:: d_step { p[i].phase == asking && p[i].age ->
		p[i].unknown = true; p[i].late = p[i].late || p[i].acquire; p[i].acquire = false;
		give_up(i) }

	/* The lease is renewed until the function returns, also when its context has ended (rule 4). */
	:: d_step { p[i].phase == running && p[i].call == silence && !p[i].refused && calm(i) ->
		call_for(i); p[i].renew = true; sends(i) }
	:: atomic { p[i].renew ->
		store_renews(i);
		if
		:: p[i].phase != running || p[i].call != waiting
		:: else ->
			if
			:: said -> p[i].call = granted
			:: !said -> not_yours(i)
			:: !said
			fi
		fi;
#ifdef LIVENESS
		p[i].renew = false;
#endif
		said = false }
	:: d_step { p[i].phase == running && p[i].call == granted ->
		if
		:: believes(i) -> count(i)
		:: else /* it has ended, and stays so */
		fi;
		hang_up(i);
		assert(!both_believe) }
	:: d_step { p[i].phase == running && p[i].call != silence -> hang_up(i) }

	/*
	 * The function has returned, and the lease passes to another call of the process: what is
	 * left of it, and no more (rule 13).
	 */
#if defined(BREAK_PASSED_ON_AS_IF_NEW)
	:: d_step { p[i].phase == running && p[i].valid -> p[i].valid = VALID }
#elif defined(BREAK_PASSED_ON_WITHOUT_END)
	:: d_step { p[i].phase == running && p[i].valid && p[i].ran -> p[i].ran = 0 }
#elif defined(LIVENESS)
	:: d_step { p[i].phase == running && p[i].valid && p[i].ran && p[i].turn < TURN -> p[i].ran = 0 }
#endif

	/*
	 * It has returned, and the lease is given back. It is not believed in any more when that is
	 * sent.
	 */
	:: d_step { p[i].phase == running ->
		if
#ifdef BREAK_NO_CLEAN_UP_OF_WHAT_WAS_LOST
		:: p[i].refused -> forget(i)
#else
		:: p[i].refused && !p[i].unknown -> forget(i) /* there is nothing to give back */
#endif
		:: else ->
			hang_up(i);
			p[i].phase = giving;
#ifndef BREAK_BELIEF_WHILE_RELEASING
			p[i].valid = 0
#endif
		fi }
	:: d_step { p[i].phase == giving && (!p[i].release || !p[i].sure) && calm(i) ->
		p[i].release = true; p[i].sure = !p[i].late; sends(i) }
	:: atomic { p[i].release ->
		store_releases(i);
		/* If an acquire may come behind it, it is sent again later. */
		if
#ifdef BREAK_CLEAN_UP_BEFORE_IT_SETTLES
		:: p[i].phase == giving -> forget(i)
#else
		:: p[i].phase == giving && p[i].sure -> forget(i)
#endif
		:: true
		fi }
#ifdef BREAK_RENEWAL_AFTER_RELEASE
	:: d_step { p[i].phase == giving && calm(i) -> p[i].renew = true; sends(i) }
#endif

	/* A message is lost, or no copy of it is left. */
	:: p[i].acquire -> p[i].acquire = false
	:: p[i].late -> p[i].late = false
	:: p[i].renew -> p[i].renew = false
	:: p[i].release -> p[i].release = false
	od
}

/* passes is a tick of a process' clock. */
inline passes(i) {
	p[i].valid = (p[i].valid -> p[i].valid - 1 : 0);
	p[i].age = (p[i].call != silence && p[i].age < VALID && (p[i].phase == asking || p[i].valid) -> p[i].age + 1 : p[i].age)
}

/*
 * sleeps is a tick while the process' host is suspended: its clock stands still, but it is told
 * afterwards (rule 2).
 */
inline sleeps(i) {
#ifndef BREAK_SUSPENSION_UNNOTICED
	p[i].valid = 0;
	p[i].age = (p[i].call != silence -> VALID : 0)
#else
	skip
#endif
}

inline store_passes() {
	left = (left -> left - 1 : 0);
	holder = (left -> holder : NOBODY)
}

#ifdef LIVENESS
active proctype clock() {
end:	do
	:: d_step { p[0].phase != running || p[0].ran < RUN ->
		store_passes(); passes(0);
		p[0].hasty = false;
		if
		:: p[0].phase == running -> p[0].ran++; p[0].turn = (p[0].turn < TURN -> p[0].turn + 1 : TURN)
		:: else
		fi }
	od
}

ltl free_again { [] <> (holder == NOBODY) }
#else
/* Where process 0 counts no time, it does not matter how long its clock goes right yet. */
inline goes_right() { right = (right && (p[0].valid || p[0].phase == asking) -> right - 1 : 0) }

active proctype clock() {
end:	do
	:: d_step { store_passes(); passes(0); passes(1); goes_right() }
	:: d_step { right == 0 && (p[0].valid || p[0].phase == asking) -> store_passes(); passes(1); right = TTL - 1 }
	:: d_step { store_passes(); sleeps(0); passes(1); goes_right() }
	od
}
#endif

#ifdef FORGETS
/*
 * Somebody deletes the key, or the store loses what it knew. Nothing keeps two from believing
 * then, until the next renewal.
 */
active proctype forgetful() {
end:	do
	:: d_step { holder != NOBODY ->
		if
		:: p[holder].phase == asking || p[holder].phase == running -> p[holder].excused = true
		:: else
		fi;
		holder = NOBODY; left = 0 }
	od
}
#endif

init {
	atomic {
		run client(0);
#if CLIENTS > 1
		run client(1)
#endif
	}
}
