/*
 * Fences of a RedLock: rule 9 of the design on three nodes, whose clocks differ. As in fence.pml
 * there is no time in it: a lease may end on each node at any moment. Who may hold one when is in
 * majority.pml.
 *
 * What must hold: who wins the key has a higher fence than all who won it before.
 *
 * With -DFORGETS=n so many nodes forget all, once each: they restart, and grant nothing then for
 * as long as WithMinUptime says. With -DFLUSHED they do so without a restart, and two may hold
 * the key. There, who has asked for it after another had won it must have a higher fence than
 * that, and no fence has two holders.
 *
 * -DBREAK_... breaks the rule, and spin must find how that goes wrong. -DLIMIT_... takes away
 * what is taken for granted.
 */

#define NODES 3
#ifdef BREAK_QUORUM_OF_HALF
#define QUORUM 1
#else
#define QUORUM 2
#endif
#define CLIENTS 2
#define NOBODY CLIENTS
#define AHEAD 2 /* by how much the first fence of a node is ahead of its clock, see fence.pml */
#ifndef CLOCK_ENDS
#define CLOCK_ENDS 4 /* a grant takes some time, so this bounds them, too */
#endif

typedef node {
	byte holder = NOBODY;
	byte last;      /* the counter, or 0 if there is none */
	byte clock = 1; /* as a fence */
#ifdef FORGETS
	bool forgot;
	byte away       /* it does not grant before its clock is past this */
#endif
};
node n[NODES];

/* A ballot of a process. */
typedef ballot {
	byte vote[NODES]; /* the fence that the node has granted, or 0 */
	byte fence        /* once it is decided: the lease's, which a majority has to have */
#ifdef FLUSHED
	; byte above      /* the highest fence that had won when it began */
#endif
};
ballot b[CLIENTS];

byte most; /* the highest fence that has won */
#ifdef FLUSHED
short won; /* all that have, a bit for each */
#endif

#ifdef FORGETS
#define is_back(k) (n[k].clock > n[k].away)
#else
#define is_back(k) true
#endif

#define larger(x, y) (x > y -> x : y)
#define highest(i) larger(larger(b[i].vote[0], b[i].vote[1]), b[i].vote[2])
#define votes(i) ((b[i].vote[0] > 0) + (b[i].vote[1] > 0) + (b[i].vote[2] > 0))
#define have(i) ((b[i].vote[0] >= b[i].fence) + (b[i].vote[1] >= b[i].fence) + (b[i].vote[2] >= b[i].fence))

/*
 * is_over ends a ballot that is lost, won, or late. What was granted ends on each node when it is
 * released there, or by itself.
 */
inline is_over(x) {
	b[x].vote[0] = 0; b[x].vote[1] = 0; b[x].vote[2] = 0; b[x].fence = 0;
#ifdef FLUSHED
	b[x].above = 0
#endif
}

/*
 * counts decides on the ballot once a majority has granted it. It is won when a majority has the
 * fence.
 */
inline counts(i) {
	if
	:: !b[i].fence && votes(i) >= QUORUM ->
#ifdef BREAK_FENCE_OF_ONE_NODE
		b[i].fence = (b[i].vote[0] -> b[i].vote[0] : b[i].vote[1])
#else
		b[i].fence = highest(i)
#endif
	:: else
	fi;
	if
#ifdef BREAK_FENCE_IS_NOT_RAISED
	:: b[i].fence ->
#else
	:: b[i].fence && have(i) >= QUORUM ->
#endif
#ifdef FLUSHED
		assert(b[i].fence > b[i].above && !(won >> b[i].fence & 1));
		won = won | 1 << b[i].fence;
		most = larger(b[i].fence, most);
#else
		assert(b[i].fence > most);
		most = b[i].fence;
#endif
		is_over(i)
	:: else
	fi
}

inline ask(i, k) {
#ifdef FLUSHED
	b[i].above = (votes(i) -> b[i].above : most);
#elif defined(FORGETS)
	if
	:: n[k].away && b[1 - i].vote[k] -> is_over(1 - i) /* what it forgot has ended by now */
	:: else
	fi;
#endif
#ifdef FORGETS
	n[k].away = 0;
#endif
	b[i].vote[k] = (!n[k].last -> n[k].clock + AHEAD : larger(n[k].clock, n[k].last + 1));
	n[k].holder = i;
	n[k].last = b[i].vote[k];
	n[k].clock++; /* it takes its time */
	counts(i)
}

/* raise has a node that granted a lower fence know the lease's. */
inline raise(i, k) {
	if
	:: n[k].holder == i -> n[k].last = larger(b[i].fence, n[k].last); b[i].vote[k] = b[i].fence; counts(i)
	:: else -> is_over(i)
	fi
}

#define may_ask(i, k) (!b[i].fence && !b[i].vote[k] && n[k].holder == NOBODY && n[k].clock < CLOCK_ENDS && is_back(k))
#define may_raise(i, k) (b[i].fence && b[i].vote[k] && b[i].vote[k] < b[i].fence)

proctype client(byte i) {
end:	do
	:: d_step { may_ask(i, 0) -> ask(i, 0) }
	:: d_step { may_ask(i, 1) -> ask(i, 1) }
	:: d_step { may_ask(i, 2) -> ask(i, 2) }
	:: d_step { may_raise(i, 0) -> raise(i, 0) }
	:: d_step { may_raise(i, 1) -> raise(i, 1) }
	:: d_step { may_raise(i, 2) -> raise(i, 2) }
	:: d_step { votes(i) -> is_over(i) }
	od
}

active [NODES] proctype server() {
	byte k = _pid;
end:	do
	/*
	 * A lease ends by itself, or is released. By then a ballot that counts on it is over
	 * (lease.pml).
	 */
	:: d_step { n[k].holder != NOBODY ->
		if
		:: b[n[k].holder].vote[k] -> is_over(n[k].holder)
		:: else
		fi;
		n[k].holder = NOBODY }
	:: n[k].clock < CLOCK_ENDS -> n[k].clock++
#ifdef FORGETS
	/* That takes longer than by how much clocks differ. */
	:: d_step { k < FORGETS && n[k].last && !n[k].forgot ->
		n[k].forgot = true;
		n[k].holder = NOBODY; n[k].last = 0;
#ifndef LIMIT_FORGETS_BEHIND_THE_CLOCKS
		n[k].away = larger(larger(n[0].clock, n[1].clock), n[2].clock)
#endif
		}
#endif
	od
}

init {
	atomic {
		run client(0);
		run client(1)
	}
}
