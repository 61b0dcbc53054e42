package main

// cost breaks rules 15 to 18: what a lease costs.
var cost = []mutant{
	{
		name: "mutant_goroutine_for_each_lease", rule: 15, does: "each lease that is held has a goroutine",
		hunks: []hunk{{"guard/schedule.go", "h.next = h.nextEvent()\n\theap.Push(&g.schedule.heap, h)\n", "h.next = h.nextEvent()\n\theap.Push(&g.schedule.heap, h)\n\tgo func() { <-h.life.Done() }()\n"}},
		pkg:   "guard", test: "TestSchedule_tenThousandLeasesAreAConstantNumberOfGoroutines",
	},
	{
		name: "mutant_renewals_alone", rule: 15, does: "each lease is renewed in a call of its own",
		hunks: []hunk{{"guard/schedule.go", "len(b) < largestBatch &&", "len(b) < 1 &&"}},
		pkg:   "guard", test: "TestSchedule_renewsInBatchesWhatIsDueAtOnce",
	},
	{
		name: "mutant_answers_nil", rule: 16, does: "the script that renews answers nil for what it does not find",
		hunks: []hunk{{"backend/single/renew.lua", "return 0\n", "return nil\n"}},
		pkg:   "backend/single", test: "TestFaults10to12_keyGoneUnderTheHolder",
	},
	{
		name: "mutant_key_not_declared", rule: 16, does: "a script reads a key that it does not declare",
		hunks: []hunk{{"backend/single/renew.lua", "local lease = redis.call('GET', KEYS[1])", "redis.call('GET', 'onerun:undeclared')\nlocal lease = redis.call('GET', KEYS[1])"}},
		pkg:   "backend", test: "TestSuite_cluster/single/a_renewal_lasts_for_its_TTL_from_then_on",
	},
	{
		name: "mutant_third_round_trip", rule: 17, does: "a lease is renewed before the function runs",
		hunks: []hunk{{"guard/acquire.go", "h.grant(a, grant, sent, answered, anchor)\n", "h.grant(a, grant, sent, answered, anchor)\n\t_, _ = g.locker.Renew(a.ctx, h.claim)\n"}},
		pkg:   "backend/single", test: "TestDo_costsTwoRoundTrips",
	},
	{
		name: "mutant_quorums_third_round_trip", rule: 17, does: "a quorum asks without a hint at a fence that all can grant",
		hunks: []hunk{{"backend/redlock/acquire.go", "c.Hint = l.clocks.hint(l.quorum)", "c.Hint = unknown"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer",
	},
	{
		name: "mutant_one_claim_a_call", rule: 18, does: "what has waited for a call to return goes out one by one",
		hunks: []hunk{{"backend/internal/redisstore/lane.go", "largestFlight = 128", "largestFlight = 1"}},
		pkg:   "backend/single", test: "TestTogether_whatComesWhileACallIsOutGoesOutAsOne",
	},
	{
		name: "mutant_batch_ends_with_a_caller", rule: 18, does: "a batch ends with the context of who came first",
		hunks: []hunk{
			{"backend/internal/redisstore/lane.go", "return context.WithoutCancel(r.ctx), func() {}", "return flight[0].ctx, func() {}"},
			{"backend/internal/redisstore/lane.go", "context.WithDeadline(context.WithoutCancel(flight[0].ctx), last)", "context.WithDeadline(flight[0].ctx, last)"},
		},
		pkg: "backend", test: "TestTogether_whoLeavesDoesNotEndTheScriptOfTheOthers",
	},
}
