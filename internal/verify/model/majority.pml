/*
 * Who believes to hold a lease on a RedLock, and when, on three nodes: any of them restarts
 * empty, at any time and any number of times, with -DFORGETS. The fences are in quorum.pml, and
 * all that a lease does on one store is in lease.pml.
 *
 * What must hold: no two processes believe in a lease at once.
 *
 * Time goes by in ticks, and what is remembered of it is relative, so there is no horizon. All
 * clocks go at one speed, so there is no margin. What a node does takes no time; a call waits for
 * any time before that, and a process before it uses the answers. An answer may be lost.
 *
 * -DBREAK_... breaks a rule, and spin must find how that goes wrong. -DLIMIT_... takes away what
 * is taken for granted.
 */

#define NODES 3
#ifdef BREAK_QUORUM_OF_HALF
#define QUORUM 1
#else
#define QUORUM 2
#endif
#define CLIENTS 2
#define NOBODY CLIENTS
#ifndef TTL
#define TTL 3
#endif

/*
 * For how long a node that has restarted grants nothing. Claims that are taken in again are no
 * exception.
 */
#if defined(LIMIT_BACK_AT_ONCE)
#define SILENT 0
#elif defined(BREAK_BACK_BEFORE_A_TTL)
#define SILENT (TTL - 1)
#else
#define SILENT TTL
#endif

typedef node {
	byte holder = NOBODY;
	byte left; /* of the TTL */
	byte silent
};
node n[NODES];

mtype = { idle, asking, running };

/* A process has one claim at a time. */
typedef process {
	mtype phase = idle;
	bool call;        /* it has asked the nodes, for the lease or to renew it */
	byte age;         /* of the call, as far as that matters */
	bool vote[NODES]; /* what nodes have answered to it: that they hold the key for the claim */
	byte valid        /* how long it may believe in the lease yet */
};
process p[CLIENTS];

#define both_believe (p[0].valid && p[1].valid)
#define votes(i) (p[i].vote[0] + p[i].vote[1] + p[i].vote[2])
#define has(i, k) (n[k].holder == i)
#define may_grant(i, k) (has(i, k) || n[k].holder == NOBODY && !n[k].silent)

inline call_for(i) { p[i].call = true; p[i].age = 0 }
inline hang_up(i) { p[i].call = false; p[i].age = 0; p[i].vote[0] = false; p[i].vote[1] = false; p[i].vote[2] = false }

/* count counts validity from before the nodes were asked (rule 1). */
inline count(i) {
#ifdef BREAK_VALID_FROM_THE_ANSWER
	p[i].valid = TTL;
#else
	p[i].valid = TTL - p[i].age;
#endif
	hang_up(i);
	assert(!both_believe)
}

#define may_ask(i, k) (p[i].phase == asking && !p[i].vote[k] && may_grant(i, k))
#define may_renew(i, k) (p[i].phase == running && p[i].call && !p[i].vote[k] && has(i, k))
inline holds(i, k) { n[k].holder = i; n[k].left = TTL }

proctype client(byte i) {
end:	do
	/* A claim begins. Nothing is left of the last one, which stands for an ID of its own. */
	:: d_step { p[i].phase == idle && !has(i, 0) && !has(i, 1) && !has(i, 2) -> p[i].phase = asking; call_for(i) }

	/* A node grants it, or renews the lease. */
	:: d_step { may_ask(i, 0) || may_renew(i, 0) -> holds(i, 0); p[i].vote[0] = true }
	:: d_step { may_ask(i, 1) || may_renew(i, 1) -> holds(i, 1); p[i].vote[1] = true }
	:: d_step { may_ask(i, 2) || may_renew(i, 2) -> holds(i, 2); p[i].vote[2] = true }

	/* The answer is lost; or a node that did not have the lease takes it in again. */
	:: d_step { p[i].phase != idle && may_grant(i, 0) -> holds(i, 0) }
	:: d_step { p[i].phase != idle && may_grant(i, 1) -> holds(i, 1) }
	:: d_step { p[i].phase != idle && may_grant(i, 2) -> holds(i, 2) }

	/*
	 * It has a majority. What comes too late is of no use, and a belief that has ended does not
	 * come back (rule 2).
	 */
	:: d_step { p[i].phase == asking && votes(i) >= QUORUM && p[i].age < TTL -> p[i].phase = running; count(i) }
	:: d_step { p[i].phase == running && p[i].call && votes(i) >= QUORUM && p[i].valid -> count(i) }

	/* It renews the lease, or gives up waiting for that. */
	:: d_step { p[i].phase == running && !p[i].call -> call_for(i) }
	:: d_step { p[i].phase == running && p[i].call -> hang_up(i) }

	/*
	 * It gives up the ballot, or has lost the lease, or gives it back, and is done with it before
	 * the nodes are told.
	 */
	:: d_step { p[i].phase != idle -> p[i].phase = idle; hang_up(i); p[i].valid = 0 }
	od
}

active [NODES] proctype server() {
	byte k = _pid;
end:	do
	:: d_step { n[k].holder != NOBODY && p[n[k].holder].phase == idle -> n[k].holder = NOBODY; n[k].left = 0 }
#ifdef FORGETS
	:: d_step { k < FORGETS && (n[k].holder != NOBODY || n[k].silent) -> n[k].holder = NOBODY; n[k].left = 0; n[k].silent = SILENT }
#endif
	od
}

inline node_passes(k) {
	n[k].left = (n[k].left -> n[k].left - 1 : 0);
	n[k].holder = (n[k].left -> n[k].holder : NOBODY);
	n[k].silent = (n[k].silent -> n[k].silent - 1 : 0)
}

inline passes(i) {
	p[i].valid = (p[i].valid -> p[i].valid - 1 : 0);
	p[i].age = (p[i].call && p[i].age < TTL -> p[i].age + 1 : p[i].age)
}

active proctype clock() {
end:	do
	:: d_step { node_passes(0); node_passes(1); node_passes(2); passes(0); passes(1) }
	od
}

init {
	atomic {
		run client(0);
		run client(1)
	}
}
