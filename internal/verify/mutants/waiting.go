package main

// waiting breaks rules 11 to 14: the queue, notifications, hand-offs, and done markers.
var waiting = []mutant{
	{
		name: "mutant_no_queue", rule: 11, does: "calls that wait do not queue: each of them asks the store",
		hunks: []hunk{
			{"guard/acquire.go", "if a.requests == 0 && (a.set.wait > 0 || a.set.joins()) {", "if false {"},
			{"guard/internal/queue/queue.go", "\tcase !a.Grant.Reason.IsUndecided() ||", "\tcase a.Grant.State == driver.Busy && now < r.Deadline:\n\t\treturn r.jitter.Poll(10, -1), true\n\tcase !a.Grant.Reason.IsUndecided() ||"},
		},
		pkg: "guard", test: "TestQueue_ofAThousandCostsTheStoreAsMuchAsOne",
	},
	{
		name: "mutant_last_in_first_out", rule: 11, does: "a lease is handed off to the last waiter",
		hunks: []hunk{{"guard/internal/queue/leases.go", "w := q.head()\n\tif w != nil && w == q.requester", "w := q.last\n\tif w != nil && w == q.requester"}},
		pkg:   "guard", test: "TestHandOff_needsNoStore",
	},
	{
		name: "mutant_trusts_notifications", rule: 12, does: "a waiter relies on notifications alone and never polls",
		hunks: []hunk{{"guard/internal/jitter/jitter.go", "return s.until(left, ttl/2+s.UpTo(ttl/20))", "return 1000*ttl"}},
		pkg:   "guard", test: "TestNotification_isNotTrustedAlone",
	},
	{
		name: "mutant_expects_notifications_of_strangers", rule: 12, does: "a waiter relies on notifications although the holder is unidentified",
		hunks: []hunk{{"guard/internal/queue/queues.go", `q.sub.isLive() && q.answer.Holder != ""`, "q.sub.isLive()"}},
		pkg:   "guard", test: "TestNotification_isNotExpectedFromAHolderWithoutAName",
	},
	{
		name: "mutant_herd", rule: 12, does: "each release has all processes ask",
		hunks: []hunk{{"backend/internal/redisstore/crowd.go", "rank := lot *", "rank := 0 * lot *"}},
		pkg:   "backend/internal/redisstore", test: "TestCrowdPause_hasFewAskAtOnceAndMoreLater",
	},
	{
		name: "mutant_trusts_the_chosen", rule: 12, does: "waiters that a release has not chosen do not ask later",
		hunks: []hunk{{"backend/internal/redisstore/crowd.go", "late*float64(crowdEach)))", "late*float64(crowdEach))) + 1000*time.Hour"}},
		pkg:   "backend/internal/redisstore", test: "TestCrowdPause_hasFewAskAtOnceAndMoreLater",
	},
	{
		name: "mutant_forgets_the_pause", rule: 12, does: "a waiter that is to ask later asks at once",
		hunks: []hunk{{"guard/internal/queue/queues.go", "if in == 0 || q.id.Owner", "if in >= 0 || q.id.Owner"}},
		pkg:   "guard/internal/queue", test: "TestLocal_letsOthersAskBeforeIfItIsNotifiedForLater",
	},
	{
		name: "mutant_candidates_let_watchers_ask", rule: 12, does: "a candidate leaves a free key to processes that only watch it",
		hunks: []hunk{{"guard/internal/queue/local.go", "return w.terms.Prompt ||", "return"}},
		pkg:   "guard/internal/queue", test: "TestLocal_asksAtOnceIfOthersNeedNotKeepTheKeyAway",
	},
	{
		name: "mutant_waiters_wake_each_other", rule: 12, does: "a release on the backend that did not refuse the claim wakes waiters",
		hunks: []hunk{{"backend/both/notify.go", "g.passes = by", "g.passes = anySide"}},
		pkg:   "backend/both", test: "TestSubscribe_wakesForTheSideThatHasRefused",
	},
	{
		name: "mutant_ignores_notifications", rule: 12, does: "a notification does not wake a waiter",
		hunks: []hunk{{"guard/internal/queue/subscription.go", "s.live = true\n\ts.deliver(now, in)", "s.live = true"}},
		pkg:   "guard", test: "TestNotification_wakesAWaiter",
	},
	{
		name: "mutant_sleeps_past_the_lease", rule: 12, does: "a waiter does not ask when the holder's lease ends",
		hunks: []hunk{{"guard/internal/jitter/jitter.go", "return s.until(left, s.Backoff(FirstPoll, LongestPoll, n))", "return s.Backoff(FirstPoll, LongestPoll, n)"}},
		pkg:   "guard", test: "TestWait_asksAtTheEndOfTheHoldersLease",
	},
	{
		name: "mutant_does_not_ask_when_subscribed", rule: 12, does: "a waiter does not ask when its subscription begins",
		hunks: []hunk{{"guard/internal/queue/subscription.go", "s.live = true\n\ts.deliver(now, in)", "if s.live {\n\t\ts.deliver(now, in)\n\t}\n\ts.live = true"}},
		pkg:   "guard", test: "TestNotification_asksOnceTheSubscriptionHasBegun",
	},
	{
		name: "mutant_waits_past_its_context", rule: 12, does: "a waiter does not leave the queue when its context ends",
		hunks: []hunk{{"guard/wait.go", "step.Wake, a.caller.Done(), a.guard.closing.Done())", "step.Wake, nil, a.guard.closing.Done())"}},
		pkg:   "guard", test: "TestQueue_aCallThatLeavesDoesNotDelayOthers",
	},
	{
		name: "mutant_same_fence_handed_off", rule: 13, does: "a lease is handed off with the fence of the hold before",
		hunks: []hunk{{"guard/handoff.go", "t.claim.Fence++\n", ""}},
		pkg:   "guard", test: "TestHandOff_needsNoStore",
	},
	{
		name: "mutant_hand_off_without_end", rule: 13, does: "a lease is handed off for as long as calls wait",
		hunks: []hunk{{"guard/handoff.go", "now-t.began < handOffPeriod(ttl) && ", ""}},
		pkg:   "guard", test: "TestHandOff_isBoundedByTime",
	},
	{
		name: "mutant_fences_not_reserved", rule: 13, does: "a lease is handed off with fences that are not reserved",
		hunks: []hunk{
			{"guard/handoff.go", "t.claim.Fences.Reserve > 0 && ", ""},
			{"guard/release.go", "case t.claim.Fences.Reserve == 0 || end.cause != nil:", "case end.cause != nil:"},
		},
		pkg: "guard", test: "TestHandOff_isBoundedByTheReservedFences",
	},
	{
		name: "mutant_unknown_claim_stays_queued", rule: 12, does: "a process that is notified for a claim that it does not know is silent",
		hunks: []hunk{{"backend/internal/redisstore/queue.go", "\t\t\tq.dequeue(key, id)\n", ""}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_notified_claim_that_its_process_does_not_know_delays_nobody",
	},
	{
		name: "mutant_done_runs_again", rule: 14, does: "a waiter runs work that is done",
		hunks: []hunk{{"guard/ask.go", "if err == nil && grant.State == driver.Granted {", "if err == nil && grant.State != driver.Busy {"}},
		pkg:   "guard", test: "TestWait_returnsDoneIfTheWorkFinishesMeanwhile",
	},
	{
		name: "mutant_no_marker", rule: 14, does: "the script leaves no done marker",
		hunks: []hunk{{"backend/single/release.lua", "if leave == '' then", "if leave == '' or string.sub(leave, 1, 1) == 'D' then"}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_done_marker_answers_with_its_record",
	},
	{
		name: "mutant_done_not_shared", rule: 14, does: "the answer that the key is done reaches the first waiter only",
		hunks: []hunk{{"guard/internal/queue/queues.go", "for w := q.first; w != nil && w.number <= q.requestCovers; w = q.first {", "for w := q.first; w == q.first && w != nil; w = nil {"}},
		pkg:   "guard", test: "TestQueue_sharesDone",
	},
}
