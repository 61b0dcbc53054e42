package main

// safety breaks rules 1 to 8: how long a lease is valid, and what happens at its end.
var safety = []mutant{
	{
		name: "mutant_validity_from_the_reply", rule: 1, does: "validity is counted from the reply",
		hunks: []hunk{{"guard/ask.go", "t := g.newStoreLease(a.claim, grant, a.sent, a.anchor, now)", "t := g.newStoreLease(a.claim, grant, now, a.anchor, now)"}},
		pkg:   "guard", test: "TestAcquire_countsValidityFromBeforeTheRequest",
	},
	{
		name: "mutant_no_margin", rule: 1, does: "no margin is subtracted for clock drift",
		hunks: []hunk{{"guard/storelease.go", "{ return ttl/driftShare + minMargin }", "{ return 0 }"}},
		pkg:   "guard", test: "TestLoss_endsTheContextBeforeTheLeaseWhateverTheStoreDoes",
	},
	{
		name: "mutant_margin_of_the_call_ignored", rule: 2, does: "WithMargin does not end the context earlier",
		hunks: []hunk{{"guard/holder.go", "return h.storeLease.validUntil() - h.set.margin", "return h.storeLease.validUntil()"}},
		pkg:   "guard", test: "TestMargin_endsTheContextBeforeTheLease",
	},
	{
		name: "mutant_margin_spoils_the_lease_of_others", rule: 2, does: "the margin of one call ends the lease of all that share it",
		hunks: []hunk{{"guard/holder.go", "return h.storeLease.validUntil() - h.set.margin", "return h.storeLease.validUntil() - h.storeLease.holder.set.margin"}},
		pkg:   "guard", test: "TestMargin_ofCallsThatShareALeaseIsTheirOwn",
	},
	{
		name: "mutant_late_grant_is_used", rule: 1, does: "a grant is used although its validity has passed",
		hunks: []hunk{{"guard/ask.go", "valid := h.valid()", "valid := true"}},
		pkg:   "guard", test: "TestAcquire_refusesAGrantThatComesTooLate",
	},
	{
		name: "mutant_quorum_too_late", rule: 1, does: "a quorum grants a claim even if that took too long",
		hunks: []hunk{{"backend/redlock/acquire.go", "if time.Since(b.start) > b.claim.TTL-drift(b.claim.TTL) {", "if false {"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_aMajorityThatGrantsTooLateIsNone",
	},
	{
		name: "mutant_no_local_deadline", rule: 2, does: "the context does not end at the local deadline",
		hunks: []hunk{{"guard/schedule.go", "lost = append(lost, t.expire(now)...)\n\t\tif t.renewal", "t.expire(now)\n\t\tif t.renewal"}},
		pkg:   "guard", test: "TestValid_isFalseBeforeTheContextHasEnded",
	},
	{
		name: "mutant_suspension_ignored", rule: 2, does: "a lease stays valid through a suspension of the host",
		hunks: []hunk{{"guard/storelease.go", "return total-time.Duration(t.anchor.Load()) >= t.margin", "return false"}},
		pkg:   "guard", test: "TestSuspension_losesTheLeases",
	},
	{
		name: "mutant_not_held_is_retried", rule: 3, does: "a renewal that answers \"not held\" is repeated like an error",
		hunks: []hunk{{"guard/renew.go", "case err != nil:\n\t\tr.failed(err, now)", "case err != nil || !held:\n\t\tr.failed(err, now)"}},
		pkg:   "guard", test: "TestLoss_isNoticedAtOnceWhenTheStoreSaysNotHeld",
	},
	{
		name: "mutant_held_by_one_of_two", rule: 3, does: "a lease that one of two backends has lost is renewed",
		hunks: []hunk{{"backend/both/renew.go", "r.lost = true", "r.lost = false"}},
		pkg:   "backend/both", test: "TestRenew_isLostIfEitherSideHasLost",
	},
	{
		name: "mutant_renewal_error_is_final", rule: 3, does: "a failed renewal is not repeated",
		hunks: []hunk{{"guard/renew.go", "t.renewAt = now + t.guard.renewalPause(t.claim.TTL, t.failures)", "t.renewAt = clock.Never"}},
		pkg:   "guard", test: "TestRenewal_continuesAfterErrors",
	},
	{
		name: "mutant_renewals_in_a_row", rule: 3, does: "keys are renewed one after the other",
		hunks: []hunk{
			{"guard/renew.go", "all.Go(func() {\n\t\t\tdefer done()", "func() {\n\t\t\tdefer done()"},
			{"guard/renew.go", "g.renewOne(ctx, r)\n\t\t})", "g.renewOne(ctx, r)\n\t\t}()"},
		},
		pkg: "guard", test: "TestRenewal_ofOneKeyIsNotDelayedByAnother",
	},
	{
		name: "mutant_late_renewal_is_ignored", rule: 3, does: "the late answer to a renewal does not count",
		hunks: []hunk{{"guard/renew.go", "|| err != nil && r.overdue {", "|| r.overdue {"}},
		pkg:   "guard", test: "TestSlow_aRenewalThatIsAnsweredLateCountsFromItsSending",
	},
	{
		name: "mutant_marker_is_given_up_early", rule: 6, does: "a release with a marker waits no longer than any other",
		hunks: []hunk{{"guard/marking.go", "until := max(r.storeEnd, r.at+releaseTimeout(r.claim.TTL))", "until := r.at + releaseTimeout(r.claim.TTL)"}},
		pkg:   "guard", test: "TestSlow_aMarkerIsReportedMissingOnlyIfItIsOrNobodyCanTell",
	},
	{
		name: "mutant_renewal_of_any_claim", rule: 3, does: "the script renews any claim that holds the key",
		hunks: []hunk{{"backend/single/renew.lua", "if not lease or string.sub(lease, 1, #mine) ~= mine then", "if not lease then"}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_renewal_by_another_claim_is_refused",
	},
	{
		name: "mutant_renewal_ends_with_the_context", rule: 4, does: "renewal stops when the context ends, although the function is running",
		hunks: []hunk{{"guard/schedule.go", "if t.renewal == renewalIdle && t.renewAt <= now {", "if t.holder.ctx.Err() != nil {\n\t\t\tt.renewAt = clock.Never\n\t\t}\n\t\tif t.renewal == renewalIdle && t.renewAt <= now {"}},
		pkg:   "guard", test: "TestRenewal_continuesUntilTheFunctionHasReturned",
	},
	{
		name: "mutant_renewal_after_the_release", rule: 4, does: "a lease stays in the schedule when its release has begun",
		hunks: []hunk{{"guard/release.go", "h.guard.schedule.remove(t)\n", ""}},
		pkg:   "guard", test: "TestRenewal_continuesUntilTheFunctionHasReturned",
	},
	{
		name: "mutant_no_clean_up", rule: 5, does: "a claim whose request had no answer is not cleaned up",
		hunks: []hunk{{"guard/ask.go", "a.stored, a.late = storedNothing, true", "a.stored = storedNothing"}},
		pkg:   "guard", test: "TestAcquire_cleansUpAClaimWithAnUnknownOutcome",
	},
	{
		name: "mutant_answer_is_dropped", rule: 5, does: "the answer to a call that has given up is not noted",
		hunks: []hunk{{"guard/ask.go", "\tcase err != nil:\n\t\ta.stored, a.late", "\tcase err == nil && a.caller.Err() != nil:\n\t\ta.stored = storedNothing\n\tcase err != nil:\n\t\ta.stored, a.late"}},
		pkg:   "guard", test: "TestAcquire_undoesAnAnswerThatTheCallDoesNotUse",
	},
	{
		name: "mutant_clean_up_once", rule: 5, does: "the clean-up is not repeated for a request that arrives after it",
		hunks: []hunk{{"guard/cleaner.go", "case o.state != orphanUnanswered && (!o.late || o.state == orphanReleased && (c.closing || now >= o.until)):", "case o.state != orphanUnanswered:"}},
		pkg:   "guard", test: "TestAcquire_cleansUpARequestThatArrivesAfterTheCleanUp",
	},
	{
		name: "mutant_half_a_claim_remains", rule: 5, does: "a claim that one of two backends refuses stays on the other",
		hunks: []hunk{{"backend/both/acquire.go", "return second, next, l.releaseSide(ctx, c, old)", "return second, next, nil"}},
		pkg:   "backend/both", test: "TestTryAcquire_givesTheFirstBackIfTheSecondDoesNotGrant",
	},
	{
		name: "mutant_own_claim_is_refused", rule: 5, does: "a repeated claim gets the answer that the key is busy",
		hunks: []hunk{{"backend/single/acquire.lua", "if letter == 'H' and holder == id then", "if false then"}},
		pkg:   "backend/single", test: "TestFault7_replyLostOnAcquire",
	},
	{
		name: "mutant_release_of_any_claim", rule: 6, does: "the script deletes the key even if another claim holds it",
		hunks: []hunk{{"backend/single/release.lua", "if string.sub(lease, #LEAD + 2, id_end) ~= id or not string.find(lease, '^[\\n ]', id_end + 1) then", "if false then"}},
		pkg:   "backend", test: "TestSuite_standalone/single/a_release_by_another_claim_is_refused",
	},
	{
		name: "mutant_foreign_strings_are_parsed", rule: 6, does: "with plain keys, the string of another program can be a lease or a done marker",
		hunks: []hunk{{"backend/single/acquire.lua", "string.sub(lease, 1, #LEAD) == LEAD and string.find(", "string.find("}},
		pkg:   "backend/single", test: "TestPlainKeys_takeNoForeignStringForALease",
	},
	{
		name: "mutant_release_of_another_hold", rule: 6, does: "the script releases another claim of the same owner",
		hunks: []hunk{{"backend/reentrant/release.lua", "local own, others = survey(ARGV[i])\n", "local own, others = survey(ARGV[i])\n  own = own or others.H\n"}},
		pkg:   "backend", test: "TestSuite_standalone/reentrant/a_release_by_another_claim_is_refused",
	},
	{
		name: "mutant_release_on_the_callers_context", rule: 6, does: "a release is not sent when the caller's context has ended",
		hunks: []hunk{{"guard/release.go", "lazyctx.NewCall(ctx, deadline, releaseGrace)", "lazyctx.NewCall(ctx, deadline, 0)"}},
		pkg:   "guard", test: "TestRelease_worksAfterTheContextHasEnded",
	},
	{
		name: "mutant_second_release", rule: 6, does: "a second release is sent as well",
		hunks: []hunk{{"guard/release.go", "if h.state == holderReleased {\n\t\tg.mu.Unlock()\n\t\treturn\n\t}\n", ""}},
		pkg:   "guard", test: "TestRelease_twiceDoesNothing",
	},
	{
		name: "mutant_quorum_counts_what_it_revokes", rule: 2, does: "a quorum counts a renewal on a node that has yet to revoke the claim",
		hunks: []hunk{{"backend/redlock/order.go", "return t.releasing.Load() == 0 && t.releases.Load() == releases", "return t != nil"}},
		pkg:   "backend/redlock", test: "TestRenew_doesNotCountANodeThatHasYetToReleaseTheClaim",
	},
	{
		name: "mutant_late_claim_of_a_lost_lease", rule: 5, does: "an attempt that arrives after its lease was lost is not cleaned up",
		hunks: []hunk{{"guard/release.go", "case h.storeLease.late:", "case h.storeLease.late && h.lost == nil:"}},
		pkg:   "guard", test: "TestAcquire_cleansUpALateRepetitionHoweverTheLeaseEnds",
	},
	{
		name: "mutant_panic_keeps_the_lease", rule: 6, does: "the lease of a function that panics is not released",
		hunks: []hunk{{"guard/run.go", "if r.releases {", "if r.releases && r.state == runReturned {"}},
		pkg:   "guard", test: "TestDo_releasesAndPropagatesAPanic",
	},
	{
		name: "mutant_panic_swallowed", rule: 6, does: "Do swallows a panic of the function",
		hunks: []hunk{{"guard/run.go", "defer func() { err = r.end", "defer func() { _ = recover(); err = r.end"}},
		pkg:   "guard", test: "TestDo_releasesAndPropagatesAPanic",
	},
	{
		name: "mutant_unknown_is_busy", rule: 7, does: "the error of a busy key is also ErrStore",
		hunks: []hunk{{"guard/errors.go", "func (e *BusyError) Is(target error) bool { return target == ErrBusy }", "func (e *BusyError) Is(target error) bool { return target == ErrBusy || target == ErrStore }"}},
		pkg:   "guard", test: "TestRan_isCorrectForEveryErrorOfDo",
	},
	{
		name: "mutant_our_deadline_is_the_callers", rule: 7, does: "the end of an internal context looks like the end of the caller's",
		hunks: []hunk{{"guard/driver/errors.go", "return notContext{err}", "return err"}},
		pkg:   "guard", test: "TestRan_isCorrectForEveryErrorOfDo",
	},
	{
		name: "mutant_loss_not_reported", rule: 8, does: "Do returns nil although the lease was lost",
		hunks: []hunk{{"guard/run.go", "return h.endedError(r.caller, err, true)", "return err"}},
		pkg:   "guard", test: "TestLoss_endsTheContextBeforeTheLeaseWhateverTheStoreDoes",
	},
	{
		name: "mutant_loss_at_the_release_not_reported", rule: 8, does: "Do returns nil although the release found the lease gone",
		hunks: []hunk{{"guard/release.go", "r.err = r.holder.foundLost()", "_ = r.holder.foundLost"}},
		pkg:   "guard", test: "TestDo_reportsALossThatOnlyTheReleaseFinds",
	},
}
