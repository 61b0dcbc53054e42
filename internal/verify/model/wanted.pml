/*
 * How long a writer waits for a key that readers share, on one store: two readers that come and go
 * without end, and writers, one after the other, that wait, give up, or die.
 *
 * What must hold: a writer waits no longer than a reader holds the key and the writer takes to ask
 * again. No reader is kept away for longer than WANTED after the writer has gone. Readers and a
 * writer never hold the key at once.
 *
 * Time goes by in ticks. A reader leaves, and a writer asks again, before its time is up. Requests
 * take no time: what is lost or late is in lease.pml.
 *
 * -DBREAK_... breaks a rule, and spin must find how that goes wrong.
 */

#define READERS 2
#define HOLD 2   /* ticks for which a reader holds the key at most */
#define WANTED 2 /* ticks for which a writer that was refused is wanted */
#ifdef BREAK_ASKS_TOO_LATE
#define AGAIN (WANTED + 1)
#else
#define AGAIN (WANTED - 1) /* ticks after which a writer asks again at the latest */
#endif

mtype = { away, waiting, holding };

mtype writer = away;
byte again;         /* ticks until the writer must ask again */
byte held[READERS]; /* ticks until the reader must leave, or 0 */
byte wanted;        /* ticks for which the store keeps readers away yet */
byte waited;        /* ticks for which the writer waits */
byte kept;          /* ticks for which readers are kept away, and no writer is there */

#define readers (held[0] || held[1])

/* ask is a writer's request. */
inline ask() {
	kept = 0;
	if
	:: readers -> writer = waiting; wanted = WANTED; again = AGAIN
	:: else -> writer = holding; wanted = 0; waited = 0
	fi
}

inline tick_of(ticks) {
	if
	:: ticks -> ticks--
	:: else
	fi
}

/* come is a reader's request, of which nothing comes while a writer is there or wanted. */
inline come(i) {
#ifdef BREAK_WANTED_IGNORED
	!held[i] && writer != holding -> held[i] = HOLD
#elif defined(BREAK_READERS_JOIN_A_WRITER)
	!held[i] && !wanted -> held[i] = HOLD
#else
	!held[i] && writer != holding && !wanted -> held[i] = HOLD
#endif
}

active proctype world() {
	do
	:: atomic { come(0) }
	:: atomic { come(1) }
	:: atomic { held[0] -> held[0] = 0 }
	:: atomic { held[1] -> held[1] = 0 }
	:: atomic { writer == away -> ask() }
	:: atomic { writer == waiting -> ask() }
	:: atomic { writer == holding -> writer = away }
	:: atomic { writer == waiting -> writer = away; wanted = 0; waited = 0 } /* gives up */
	:: atomic { writer == waiting -> writer = away; waited = 0 }             /* dies */
	:: atomic { /* a tick */
		held[0] != 1 && held[1] != 1 && (writer != waiting || again) ->
		tick_of(held[0]);
		tick_of(held[1]);
		tick_of(again);
		if
		:: writer == waiting -> waited++
		:: else
		fi;
		if
		:: wanted && writer == away -> kept++
		:: else -> kept = 0
		fi;
		assert(waited <= HOLD + AGAIN);
		assert(kept <= WANTED);
#ifndef BREAK_WANTED_WITHOUT_END
		tick_of(wanted)
#endif
	}
	:: atomic { writer == holding && readers -> assert(false) }
	od
}
