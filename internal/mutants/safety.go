package main

// safety breaks rules 1 to 8: what a lease is worth, and what becomes of it.
var safety = []mutant{
	{
		name: "mutant_validity_from_the_reply", rule: 1, does: "validity is counted from the reply",
		hunks: []hunk{{"guard/acquire.go", "h.grant(a, grant, sent, answered, anchor)", "h.grant(a, grant, answered, answered, anchor)"}},
		pkg:   "guard", test: "TestAcquire_countsValidityFromBeforeTheRequest",
	},
	{
		name: "mutant_no_margin", rule: 1, does: "no margin for clocks that drift apart is taken off",
		hunks: []hunk{{"guard/hold.go", "{ return ttl/driftShare + minMargin }", "{ return 0 }"}},
		pkg:   "guard", test: "TestLoss_endsTheContextBeforeTheLeaseWhateverTheStoreDoes",
	},
	{
		name: "mutant_late_grant_is_used", rule: 1, does: "a grant without validity left is used",
		hunks: []hunk{{"guard/acquire.go", "if !h.valid() {", "if false {"}},
		pkg:   "guard", test: "TestAcquire_refusesAGrantThatComesTooLate",
	},
	{
		name: "mutant_quorum_too_late", rule: 1, does: "a quorum counts however long it took",
		hunks: []hunk{{"backend/redlock/acquire.go", "if time.Since(b.start) > b.claim.TTL-drift(b.claim.TTL) {", "if false {"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_aMajorityThatGrantsTooLateIsNone",
	},
	{
		name: "mutant_no_local_deadline", rule: 2, does: "the context does not end at the local deadline",
		hunks: []hunk{{"guard/schedule.go", "if h.expire(now) {\n\t\t\tlost = append(lost, h)\n\t\t}", "h.expire(now)"}},
		pkg:   "guard", test: "TestValid_isFalseBeforeTheContextHasEnded",
	},
	{
		name: "mutant_suspension_ignored", rule: 2, does: "a lease outlives a suspension of the host",
		hunks: []hunk{{"guard/hold.go", "return slept-time.Duration(h.anchor.Load()) >= h.margin", "return false"}},
		pkg:   "guard", test: "TestSuspension_losesTheLeases",
	},
	{
		name: "mutant_not_yours_is_retried", rule: 3, does: "\"not yours\" is asked again like an error",
		hunks: []hunk{{"guard/renew.go", "case err != nil:\n\t\th.failures++", "case err != nil || !held:\n\t\th.failures++"}},
		pkg:   "guard", test: "TestLoss_isKnownAtOnceWhenTheStoreSaysNotHeld",
	},
	{
		name: "mutant_renewal_error_is_final", rule: 3, does: "a renewal that fails is not tried again",
		hunks: []hunk{{"guard/renew.go", "h.renewAt = now + h.guard.dice.renewalPause(h.claim.TTL, h.failures)", "h.renewAt = never"}},
		pkg:   "guard", test: "TestRenewal_goesOnThroughErrors",
	},
	{
		name: "mutant_renewals_in_a_row", rule: 3, does: "keys are renewed one after the other",
		hunks: []hunk{{"guard/renew.go", "each.Go(func() {\n\t\t\t\theld, err := g.locker.Renew(ctx, h.claim)\n\t\t\t\th.renewed(sent, anchor, held, err)\n\t\t\t})",
			"held, err := g.locker.Renew(ctx, h.claim)\n\t\t\th.renewed(sent, anchor, held, err)"}},
		pkg: "guard", test: "TestRenewal_ofOneKeyIsNotHeldUpByAnother",
	},
	{
		name: "mutant_renewal_of_anybodys", rule: 3, does: "the script renews whoever holds the key",
		hunks: []hunk{{"backend/single/renew.lua", "if not lease or string.sub(lease, 1, #mine) ~= mine then", "if not lease then"}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_renewal_by_another_is_refused",
	},
	{
		name: "mutant_renewal_ends_with_the_context", rule: 4, does: "renewing stops when the context has ended, though the function runs",
		hunks: []hunk{{"guard/schedule.go", "if !h.renewing && h.renewAt <= now {", "if h.ctx.Err() != nil {\n\t\t\th.renewAt = never\n\t\t}\n\t\tif !h.renewing && h.renewAt <= now {"}},
		pkg:   "guard", test: "TestRenewal_goesOnUntilTheFunctionHasReturned",
	},
	{
		name: "mutant_renewal_after_the_release", rule: 4, does: "a lease stays in the schedule when its release has begun",
		hunks: []hunk{{"guard/handover.go", "g.remove(h)\n", "\n"}},
		pkg:   "guard", test: "TestRenewal_goesOnUntilTheFunctionHasReturned",
	},
	{
		name: "mutant_no_clean_up", rule: 5, does: "what an unanswered request may have taken is left there",
		hunks: []hunk{{"guard/acquire.go", "a.failed++\n\t\ta.unknown = true\n", "a.failed++\n"}},
		pkg:   "guard", test: "TestAcquire_cleansUpWhatItDoesNotKnow",
	},
	{
		name: "mutant_clean_up_once", rule: 5, does: "the clean-up is not repeated for a request that arrives after it",
		hunks: []hunk{{"guard/cleanup.go", "case err == nil && (l.after != nil || sent >= settled && now-sent < prompt):", "case err == nil:"}, {"guard/cleanup.go", "case err == nil:\n\t\tl.gone = now >= l.until+patience\n\t\tl.next = max(settled, now+g.dice.retryPause(l.tries))\n", ""}},
		pkg:   "guard", test: "TestAcquire_cleansUpARequestThatArrivesAfterTheCleanUp",
	},
	{
		name: "mutant_own_claim_is_a_strangers", rule: 5, does: "a claim that is repeated is told that the key is busy",
		hunks: []hunk{{"backend/single/acquire.lua", "if letter == 'H' and holder == id then", "if false then"}},
		pkg:   "backend/single", test: "TestFault7_replyLostOnAcquire",
	},
	{
		name: "mutant_release_of_anybodys", rule: 6, does: "the script deletes the key whoever holds it",
		hunks: []hunk{{"backend/single/release.lua", "if not lease or string.sub(lease, 2, #id + 1) ~= id or not string.find(lease, '^[\\n ]', #id + 2) then", "if not lease then"}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_release_by_another_is_refused",
	},
	{
		name: "mutant_release_of_the_owners", rule: 6, does: "the script takes another claim of the owner's for its own",
		hunks: []hunk{{"backend/reentrant/release.lua", "local own, others = survey(id)\n", "local own, others = survey(id)\n  own = own or others.H\n"}},
		pkg:   "backend", test: "TestSuite_standalone/reentrant/a_release_by_another_is_refused",
	},
	{
		name: "mutant_release_on_the_callers_context", rule: 6, does: "a release is not sent when the caller's context has ended",
		hunks: []hunk{{"guard/release.go", "releaseTimeout(claim.TTL), releaseGrace)", "releaseTimeout(claim.TTL), 0)"}},
		pkg:   "guard", test: "TestRelease_doesNotDependOnTheContext",
	},
	{
		name: "mutant_second_release", rule: 6, does: "a second release is sent as well",
		hunks: []hunk{{"guard/release.go", "if h.released != nil {\n\t\tg.mu.Unlock()\n\t\treturn releasing{}, false\n\t}\n", ""}},
		pkg:   "guard", test: "TestRelease_twiceIsANoOp",
	},
	{
		name: "mutant_quorum_counts_what_it_gives_back", rule: 2, does: "a quorum renews by a node that has yet to give the claim back",
		hunks: []hunk{{"backend/redlock/claims.go", "return !at.unheard && at.undoing == 0 && at.undone == undone", "return at != nil"}},
		pkg:   "backend/redlock", test: "TestRenew_doesNotCountANodeThatHasYetToGiveTheClaimBack",
	},
	{
		name: "mutant_late_claim_of_a_lost_lease", rule: 5, does: "an attempt that arrives when its lease was lost is left there",
		hunks: []hunk{{"guard/release.go", "h.cleanUpOrphans() // there is nothing else left to give back\n", ""}},
		pkg:   "guard", test: "TestAcquire_cleansUpALateRepetitionWhateverBecameOfTheLease",
	},
	{
		name: "mutant_panic_keeps_the_lease", rule: 6, does: "a function that panics leaves its lease behind",
		hunks: []hunk{{"guard/run.go", "r.stop()\n\t\tback := h.giveBack(", "r.stop()\n\t\tif !r.returned {\n\t\t\treturn\n\t\t}\n\t\tback := h.giveBack("}},
		pkg:   "guard", test: "TestDo_releasesAndLetsAPanicGoOn",
	},
	{
		name: "mutant_panic_swallowed", rule: 6, does: "a panic of the function ends in Do",
		hunks: []hunk{{"guard/run.go", "r.stop()\n\t\tback := h.giveBack(", "r.stop()\n\t\t_ = recover()\n\t\tback := h.giveBack("}},
		pkg:   "guard", test: "TestDo_releasesAndLetsAPanicGoOn",
	},
	{
		name: "mutant_unknown_is_busy", rule: 7, does: "a store that cannot be asked is taken for a busy key",
		hunks: []hunk{{"guard/store_error.go", "{ return target == ErrStore }", "{ return target == ErrStore || target == ErrBusy }"}},
		pkg:   "guard", test: "TestErrors_areSixDifferentThings",
	},
	{
		name: "mutant_our_deadline_is_the_callers", rule: 7, does: "the end of a context of ours passes for that of the caller's",
		hunks: []hunk{{"guard/errors.go", "return notContext{err}", "return err"}},
		pkg:   "guard", test: "TestErrors_areSixDifferentThings",
	},
	{
		name: "mutant_loss_not_told", rule: 8, does: "Do returns nil though the lease was lost",
		hunks: []hunk{{"guard/run.go", "return h.overtaken(ctx, err)\n\t}\n\tif err == nil && h.marks() {", "return err\n\t}\n\tif err == nil && h.marks() {"}},
		pkg:   "guard", test: "TestLoss_endsTheContextBeforeTheLeaseWhateverTheStoreDoes",
	},
	{
		name: "mutant_loss_at_the_release_not_told", rule: 8, does: "Do returns nil though the release found the key taken away",
		hunks: []hunk{{"guard/release.go", "back.err = h.foundLost()", "_ = h.foundLost"}},
		pkg:   "guard", test: "TestDo_saysThatTheLeaseWasLostIfOnlyTheReleaseFindsOut",
	},
}
