package main

// fences breaks rules 9 and 10: fences grow, and they depend on the store's clock only.
var fences = []mutant{
	{
		name: "mutant_fences_count", rule: 9, does: "fences are a mere counter, which a flush resets",
		hunks: []hunk{
			{"backend/internal/redisstore/grant.lua", "math.max(last + 1, clock)", "last + 1"},
			{"backend/internal/redisstore/grant.lua", "return clock + AHEAD - 1", "return 0"},
			{"backend/single/acquire_quick.lua", "function fence_for(special, clock_digits)", "function fence_for()\n  do return nil end"},
		},
		pkg: "backend/single", test: "TestFault11_fencesGrowAcrossAFlushInTheSameInstant",
	},
	{
		name: "mutant_fences_are_the_clock", rule: 9, does: "fences are the server's clock, which may stop or go back",
		hunks: []hunk{
			{"backend/internal/redisstore/grant.lua", "math.max(last + 1, clock)", "clock"},
			{"backend/internal/redisstore/counter.lua", "last < fence and not", "not"},
		},
		pkg: "backend", test: "TestSuite_standalone/single/reserved_fences_are_granted_to_no_other_holder",
	},
	{
		name: "mutant_lost_counter_grants_the_clock", rule: 9, does: "a store that has lost its counter grants its clock as a fence",
		hunks: []hunk{{"backend/internal/redisstore/grant.lua", "return clock + AHEAD - 1", "return clock - 1"}},
		pkg:   "backend", test: "TestSuite_standalone/single/reserved_fences_are_below_those_after_a_flush",
	},
	{
		name: "mutant_reservations_without_bound", rule: 9, does: "fences are reserved without a bound on how far they are ahead of the clock",
		hunks: []hunk{{"backend/internal/redisstore/grant.lua", "math.max(math.min(reserved, most), 0)", "reserved"}},
		pkg:   "backend", test: "TestSuite_standalone/single/reserved_fences_are_below_those_after_a_flush",
	},
	{
		name: "mutant_broken_counter_is_accepted", rule: 9, does: "a broken fence counter counts as 0, and nan as a number",
		hunks: []hunk{{"backend/internal/redisstore/grant.lua", "not string.find(text, '%D') and tonumber(text)", "tonumber(text) or 0"}},
		pkg:   "backend", test: "TestFences_aCounterThatIsBrokenIsRefused",
	},
	{
		name: "mutant_quorum_reserves_all_that_it_requests", rule: 9, does: "a quorum grants all requested fences, even if its nodes have reserved fewer",
		hunks: []hunk{{"backend/redlock/acquire.go", "lease.Fences.Reserve = min(lease.Fences.Reserve, votes[i].value.Reserved)", "_ = votes[i].value.Reserved"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_reservesWhatAllOfAMajorityHaveReserved",
	},
	{
		name: "mutant_quorum_takes_the_lowest_fence", rule: 9, does: "a quorum grants the lowest fence of its nodes",
		hunks: []hunk{{"backend/redlock/tally.go", "highest = max(highest, v.value.Fence)", "if highest == 0 || v.value.Fence < highest {\n\t\t\t\thighest = v.value.Fence\n\t\t\t}"}},
		pkg:   "backend/redlock", test: "TestFences_growOverRandomFailures",
	},
	{
		name: "mutant_quorum_does_not_raise", rule: 9, does: "a quorum does not raise the lower fences of its nodes",
		hunks: []hunk{{"backend/redlock/acquire.go", "if have < l.quorum {", "if false {"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer",
	},
	{
		name: "mutant_both_do_not_raise", rule: 9, does: "the lower fence of two backends is not raised",
		hunks: []hunk{{"backend/both/acquire.go", "case first.Fence == second.Fence:", "case true:"}},
		pkg:   "backend/both", test: "TestFences_growAcrossTheStages",
	},
	{
		name: "mutant_reentry_has_a_new_fence", rule: 9, does: "an owner that re-enters gets another fence",
		hunks: []hunk{{"backend/reentrant/acquire.lua", "reentry_fence(counter, holder.fence)", "new_fence(counter)"}},
		pkg:   "backend", test: "TestSuite_standalone/reentrant/an_owner_holds_a_key_twice_with_one_fence",
	},
	{
		name: "mutant_hint_of_the_callers_clock", rule: 10, does: "a quorum takes its hints from the caller's wall clock",
		hunks: []hunk{{"backend/redlock/clocks.go", "return fenceAt(guess + now)", "_ = guess + now\n\treturn fenceAt(time.Duration(time.Now().UnixNano()))"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer",
	},
	{
		name: "mutant_fence_of_the_callers_clock", rule: 10, does: "a claim has a fence from the caller's wall clock",
		hunks: []hunk{{"guard/ask.go", "a.anchor = g.clock.Anchor(a.sent)\n", "a.anchor = g.clock.Anchor(a.sent)\n\ta.claim.Fence = uint64(time.Now().Unix()) << 20\n"}},
		pkg:   "guard", test: "TestClaims_containNoWallClockTime",
	},
}
