package main

// waiting breaks rules 11 to 14: who waits for a key, and how it comes to him.
var waiting = []mutant{
	{
		name: "mutant_no_line", rule: 11, does: "calls that wait do not stand in line: each asks the store",
		hunks: []hunk{
			{"guard/spot.go", "case a.set.wait <= 0:", "case true:"},
			{"guard/acquire.go", "\treturn 0, nil\n}\n\n// done returns", "\treturn g.dice.pollPause(a.asked, a.last.Left), nil\n}\n\n// done returns"},
		},
		pkg: "guard", test: "TestLine_askedByAThousandCostsWhatOneCosts",
	},
	{
		name: "mutant_last_come_first_served", rule: 11, does: "a lease is handed to who came last",
		hunks: []hunk{{"guard/handover.go", "a := l.first\n", "a := l.last\n"}},
		pkg:   "guard", test: "TestHandOver_needsNoStore",
	},
	{
		name: "mutant_trusts_the_push", rule: 12, does: "who waits for a push does not look for himself",
		hunks: []hunk{{"guard/wait.go", "pause := ttl/2 + d.upTo(ttl/20)\n\tif left >= 0 && left < pause {", "pause := 1000*ttl + d.upTo(ttl/20)\n\tif false {"}},
		pkg:   "guard", test: "TestPush_isNotReliedOn",
	},
	{
		name: "mutant_deaf", rule: 12, does: "who waits is not woken by a push",
		hunks: []hunk{{"guard/push.go", "p.heard = true\n\tp.line.ring(g)", "p.heard = true"}},
		pkg:   "guard", test: "TestPush_wakesAWaiter",
	},
	{
		name: "mutant_sleeps_past_the_lease", rule: 12, does: "who waits sleeps on when the holder's time is over",
		hunks: []hunk{{"guard/wait.go", "pause := d.backoff(firstPoll, longestPoll, n)\n\tif left >= 0 && left < pause {", "pause := d.backoff(firstPoll, longestPoll, n)\n\tif false {"}},
		pkg:   "guard", test: "TestWait_doesNotSleepPastTheHoldersTimeLeft",
	},
	{
		name: "mutant_does_not_ask_when_it_listens", rule: 12, does: "who has begun to listen does not ask once more",
		hunks: []hunk{{"guard/push.go", "p.heard = true\n\tp.line.ring(g)", "if p.heard {\n\t\tp.line.ring(g)\n\t}\n\tp.heard = true"}},
		pkg:   "guard", test: "TestPush_asksAtOnceWhenItListens",
	},
	{
		name: "mutant_waits_past_its_context", rule: 12, does: "who waits does not leave when its context ends",
		hunks: []hunk{{"guard/spot.go", "case <-due:\n\tcase <-ctx.Done():\n\t\treturn contextEnded(ctx, OpAcquire, a.key)\n", "case <-due:\n"}},
		pkg:   "guard", test: "TestLine_whoLeavesCostsTheOthersNothing",
	},
	{
		name: "mutant_same_fence_handed_on", rule: 13, does: "a lease is handed on with the fence of who had it",
		hunks: []hunk{{"guard/handover.go", "heir.claim.Fence++\n", ""}},
		pkg:   "guard", test: "TestHandOver_needsNoStore",
	},
	{
		name: "mutant_hand_over_without_end", rule: 13, does: "a lease is handed on for as long as anybody waits",
		hunks: []hunk{{"guard/handover.go", "case held >= turnLength(ttl), held < time.Duration(h.passed+1)*fenceEvery:", "case held < time.Duration(h.passed+1)*fenceEvery:"}},
		pkg:   "guard", test: "TestHandOver_isBoundedByTime",
	},
	{
		name: "mutant_fences_that_were_not_set_aside", rule: 13, does: "a lease is handed on with fences that another process may have",
		hunks: []hunk{{"guard/handover.go", "l.first == nil || h.claim.Reserve == 0 {", "l.first == nil {"}},
		pkg:   "guard", test: "TestHandOver_isBoundedByTheFencesThatWereSetAside",
	},
	{
		name: "mutant_done_runs_again", rule: 14, does: "work that is done is run by who has waited for it",
		hunks: []hunk{{"guard/acquire.go", "if grant.State != Granted {\n\t\treturn nil, nil", "if grant.State == Busy {\n\t\treturn nil, nil"}},
		pkg:   "guard", test: "TestWait_getsDoneIfTheWorkWasDoneMeanwhile",
	},
	{
		name: "mutant_no_marker", rule: 14, does: "the script leaves no done marker",
		hunks: []hunk{{"backend/single/release.lua", "if leave == '' then", "if leave == '' or string.sub(leave, 1, 1) == 'D' then"}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_done_marker_answers_with_its_record",
	},
	{
		name: "mutant_only_one_is_told_that_it_is_done", rule: 14, does: "those who wait behind one who was told are not told",
		hunks: []hunk{{"guard/line.go", "b != nil && b.number <= l.asked; b = a.behind {", "b != nil && false; b = a.behind {"}},
		pkg:   "guard", test: "TestLine_tellsAllThatTheWorkIsDone",
	},
}
