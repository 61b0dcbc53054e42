package main

// fences breaks rules 9 and 10: fences that grow, by the store's own clock.
var fences = []mutant{
	{
		name: "mutant_fences_count", rule: 9, does: "fences are a counter, which goes with all the rest when a server forgets",
		hunks: []hunk{
			{"backend/internal/redisstore/grant.lua", "elseif clock > last then", "elseif false then"},
			{"backend/single/acquire_alone.lua", "if not ARGV[4] then", "if false then"},
			{"backend/single/together.lua", "if counter and not values[i] and", "if false and"},
		},
		pkg: "backend/single", test: "TestFault11_fencesGrowAcrossAFlushInTheSameInstant",
	},
	{
		name: "mutant_fences_are_the_clock", rule: 9, does: "fences are the server's clock, which may step back or stand still",
		hunks: []hunk{
			{"backend/internal/redisstore/grant.lua", "fence = last + 1", "fence = clock"},
			{"backend/single/acquire_alone.lua", "last < fence then", "true then"},
		},
		pkg: "backend", test: "TestSuite_standalone/single/fences_that_were_set_aside_are_not_granted",
	},
	{
		name: "mutant_quorum_takes_the_lowest_fence", rule: 9, does: "a quorum's fence is the lowest of its nodes'",
		hunks: []hunk{{"backend/redlock/tally.go", "highest = max(highest, v.grant.Fence)", "if highest == 0 || v.grant.Fence < highest {\n\t\t\t\thighest = v.grant.Fence\n\t\t\t}"}},
		pkg:   "backend/redlock", test: "TestFences_growOverRandomFailures",
	},
	{
		name: "mutant_quorum_does_not_raise", rule: 9, does: "the highest fence is not given to those of the quorum that have a lower one",
		hunks: []hunk{{"backend/redlock/acquire.go", "if have < b.locker.quorum {", "if false {"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer",
	},
	{
		name: "mutant_reentry_has_a_new_fence", rule: 9, does: "an owner who enters again gets another fence",
		hunks: []hunk{{"backend/reentrant/acquire.lua", "fence = math.max(fence, holder.fence)", "fence = new_fence(counter)"}},
		pkg:   "backend", test: "TestSuite_standalone/reentrant/an_owner_holds_a_key_twice_with_one_fence",
	},
	{
		name: "mutant_hint_of_the_callers_clock", rule: 10, does: "a quorum hints at fences by the caller's wall clock",
		hunks: []hunk{{"backend/redlock/clocks.go", "return fenceAt(guess + now)", "_ = guess + now\n\treturn fenceAt(time.Duration(time.Now().UnixNano()))"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_asksASecondTimeForTheFenceOnlyWhereTheClocksDiffer",
	},
	{
		name: "mutant_fence_of_the_callers_clock", rule: 10, does: "a claim brings a fence of the caller's wall clock",
		hunks: []hunk{{"guard/acquire.go", "anchor := g.anchor(g.now())\n", "anchor := g.anchor(g.now())\n\ta.claim.Fence = uint64(time.Now().Unix()) << 20\n"}},
		pkg:   "guard", test: "TestClaims_haveNothingOfTheClockInThem",
	},
}
