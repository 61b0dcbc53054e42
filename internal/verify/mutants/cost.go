package main

// cost breaks rules 15 to 18: what a lease costs.
var cost = []mutant{
	{
		name: "mutant_goroutine_for_each_lease", rule: 15, does: "each held lease has a goroutine",
		hunks: []hunk{{"guard/schedule.go", "t.next = t.nextEvent()\n\theap.Push(&s.heap, t)\n", "t.next = t.nextEvent()\n\theap.Push(&s.heap, t)\n\tgo func() { <-t.holder.life.Done() }()\n"}},
		pkg:   "guard", test: "TestSchedule_needsAConstantNumberOfGoroutines",
	},
	{
		name: "mutant_renewals_alone", rule: 15, does: "each lease is renewed in its own call",
		hunks: []hunk{{"guard/schedule.go", "if !ok || len(b.all[i]) == maxBatch {", "if !ok || len(b.all[i]) == 1 {"}},
		pkg:   "guard", test: "TestSchedule_renewsInBatches",
	},
	{
		name: "mutant_answers_nil", rule: 16, does: "the renewal script answers nil for a lease that it does not find",
		hunks: []hunk{{"backend/single/renew.lua", "return 0\n", "return nil\n"}},
		pkg:   "backend/single", test: "TestFaults10to12_keyGoneUnderTheHolder",
	},
	{
		name: "mutant_key_not_declared", rule: 16, does: "a script reads an undeclared key",
		hunks: []hunk{{"backend/single/renew_quick.lua", "local leases = {}", "redis.call('GET', 'onerun:undeclared')\nlocal leases = {}"}},
		pkg:   "backend", test: "TestLong_suiteOnACluster/single/a_renewal_restarts_the_TTL",
	},
	{
		name: "mutant_third_round_trip", rule: 17, does: "a lease is renewed before the function runs",
		hunks: []hunk{{"guard/ask.go", "\tif !valid || g.isClosed()", "\t_, _ = g.locker.Renew(a.ctx, t.claim)\n\tif !valid || g.isClosed()"}},
		pkg:   "backend/single", test: "TestDo_costsTwoRoundTrips",
	},
	{
		name: "mutant_quorum_third_round_trip", rule: 17, does: "a quorum asks without a hint for a fence that all nodes can grant",
		hunks: []hunk{{"backend/redlock/acquire.go", "c.Fences.Hint = l.clocks.hint(l.quorum)", "c.Fences.Hint = noHint"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer",
	},
	{
		name: "mutant_one_request_a_call", rule: 18, does: "requests that waited for a call to return are sent one by one",
		hunks: []hunk{{"backend/internal/redisstore/command.go", "maxBatch = 128", "maxBatch = 1"}},
		pkg:   "backend/single", test: "TestTogether_whatComesWhileACallIsOutGoesOutAsOne",
	},
	{
		name: "mutant_batch_ends_with_a_caller", rule: 18, does: "a batch ends with the context of its first caller",
		hunks: []hunk{
			{"backend/internal/redisstore/request.go", "return context.WithoutCancel(r.ctx), func() {}", "return batch[0].ctx, func() {}"},
			{"backend/internal/redisstore/request.go", "context.WithDeadline(context.WithoutCancel(batch[0].ctx), last)", "context.WithDeadline(batch[0].ctx, last)"},
		},
		pkg: "backend", test: "TestTogether_aCallerThatLeavesDoesNotEndTheScriptOfOthers",
	},
}
