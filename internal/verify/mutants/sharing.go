package main

// sharing breaks rule 27, and what other rules say of keys that are shared, and of several keys.
var sharing = []mutant{
	{
		name: "mutant_one_holder_too_many", rule: 27, does: "a key has one holder more than its claims allow",
		hunks: []hunk{{"backend/internal/holders/holders.go", "return len(k.Holders) < most", "return len(k.Holders) <= most"}},
		pkg:   "guard", test: "TestLimit_holdsForAllProcesses",
	},
	{
		name: "mutant_own_limit_alone_counts", rule: 27, does: "a claim is granted by its own limit, whatever the holders allow",
		hunks: []hunk{{"backend/internal/holders/holders.go", "most = min(most, k.Holders[i].MaxHolders)", "_ = i"}},
		pkg:   "backend/memory", test: "TestLocker/the_smallest_number_of_the_holders_and_the_claim_counts",
	},
	{
		name: "mutant_one_seat_for_all", rule: 27, does: "all holders of a key have one seat",
		hunks: []hunk{{"backend/internal/holders/holders.go", "return h.Seat == seat }) {", "return false }) {"}},
		pkg:   "guard", test: "TestLimit_holdsForAllProcesses",
	},
	{
		name: "mutant_minimum_hold_is_no_holder", rule: 27, does: "a shared claim whose minimum hold has not passed is not counted",
		hunks: []hunk{{"backend/internal/holders/holders.go", "	return len(k.Holders) < most", "	n := 0\n	for _, h := range k.Holders {\n		if !h.Released || h.MaxHolders == 1 {\n			n++\n		}\n	}\n	return n < most"}},
		pkg:   "backend/memory", test: "TestLocker/a_minimum_hold_of_a_shared_claim_counts_as_a_holder",
	},
	{
		name: "mutant_upgrade_waits", rule: 27, does: "a call for a key alone, inside a shared lease on it, joins that lease",
		hunks: []hunk{{"guard/holder.go", "if max(set.maxHolders, 1) < max(h.set.maxHolders, 1) {", "if false {"}},
		pkg:   "guard", test: "TestUpgrade_isRefusedAtOnce",
	},
	{
		name: "mutant_readers_of_all_settings_join", rule: 27, does: "a call that must have a lease of its own joins that of another",
		hunks: []hunk{{"guard/settings.go", "return s.maxHolders == driver.Unlimited && !s.fair &&", "return s.maxHolders > 1 && !s.fair &&"}},
		pkg:   "guard", test: "TestLimit_holdsForAllProcesses",
	},
	{
		name: "mutant_reader_ends_the_lease_of_others", rule: 27, does: "the first reader that ends releases the lease of all",
		hunks: []hunk{{"guard/release.go", "case t.holder != h || h.next != nil:", "case false:"}},
		pkg:   "guard", test: "TestShared_endsOfOneReader",
	},
	{
		name: "mutant_readers_lose_nothing", rule: 3, does: "if a shared lease is not held, only one of its readers is notified",
		hunks: []hunk{{"guard/storelease.go", "			h.lose(reason, now-h.validUntil())\n			lost = append(lost, h)\n", "			h.lose(reason, now-h.validUntil())\n			return append(lost, h)\n"}},
		pkg:   "guard", test: "TestShared_theLeaseOfSeveralIsLostTogether",
	},
	{
		name: "mutant_shared_lease_renewed_past_the_maximum", rule: 4, does: "a shared lease is renewed after the maximum hold of its last reader",
		hunks: []hunk{{"guard/storelease.go", "LossMaxHold }) {\n\t\tt.renewAt = clock.Never", "LossMaxHold }) {\n\t\t_ = clock.Never"}},
		pkg:   "guard", test: "TestShared_maxHoldOfTheLastEndsRenewal",
	},
	{
		name: "mutant_reader_joins_a_lease_that_ends", rule: 4, does: "a reader joins a lease that is not renewed any more",
		hunks: []hunk{{"guard/handoff.go", "|| t.renewAt == clock.Never ||", "||"}},
		pkg:   "guard", test: "TestShared_aLeaseThatIsNotRenewedIsNotJoined",
	},
	{
		name: "mutant_readers_share_a_fence", rule: 9, does: "readers that share a lease have one fence",
		hunks: []hunk{{"guard/handoff.go", "	t.claim.Fence++\n", ""}},
		pkg:   "guard", test: "TestShared_readersOfAProcessHaveOneLease",
	},
	{
		name: "mutant_fence_of_several_keys_not_raised", rule: 9, does: "the store does not receive the fence of several keys",
		hunks: []hunk{{"guard/raise.go", "errs[i] = g.raise(ctx, all[i], fence, deadline)", "_ = errs[i]"}},
		pkg:   "guard", test: "TestAcquireAll_tellsTheStoreItsFence",
	},
	{
		name: "mutant_each_key_has_its_fence", rule: 9, does: "each of several keys is used with the fence that it was granted",
		hunks: []hunk{{"guard/renew.go", "		t.holder.fence.Store(fence)\n", ""}},
		pkg:   "guard", test: "TestAcquireAll_tellsTheStoreItsFence",
	},
	{
		name: "mutant_fence_used_before_the_store_knows_it", rule: 9, does: "a joined lease has the fence of several keys before the store has answered",
		hunks: []hunk{{
			"guard/raise.go", "	t.claim.Fences.Reserve = 0 // the reserved may be smaller\n",
			"	t.claim.Fences.Reserve = 0\n	t.holder.fence.Store(fence)\n",
		}},
		pkg: "guard", test: "TestDoAll_fencesAtEachExit",
	},
	{
		name: "mutant_one_fence_for_shared_keys", rule: 9, does: "several keys that others may hold, too, have one fence",
		hunks: []hunk{{"guard/raise.go", "if len(all) > 1 && sharesKey(all) {", "if false {"}},
		pkg:   "guard", test: "TestDoAll_fencesAtEachExit",
	},
	{
		name: "mutant_fence_in_the_simulation", rule: 9, does: "a call for several keys inside of a run does not wait until the store knows the fence",
		hunks: []hunk{{"guard/raise.go", "	t.raises.to = max(t.raises.to, fence)\n", "	t.raises.to = max(t.raises.to, fence)\n	h.fence.Store(fence)\n"}},
		pkg:   "internal/verify/simulation", test: "TestSharing",
	},
	{
		name: "mutant_a_reader_joins_for_ever", rule: 13, does: "readers join a lease for as long as it is held",
		hunks: []hunk{{"guard/handoff.go", "now-t.began < handOffPeriod(ttl) && ", ""}},
		pkg:   "guard", test: "TestShared_aLeaseIsJoinedForABoundedTime",
	},
	{
		name: "mutant_reader_joins_past_a_writer", rule: 11, does: "a reader joins a lease while a writer of its process waits",
		hunks: []hunk{{"guard/handoff.go", "t != nil && !g.queues.Waits(g.queueID(a.claim.Key, a.set)) &&", "t != nil &&"}},
		pkg:   "guard", test: "TestShared_readersDoNotOvertakeAWriter",
	},
	{
		name: "mutant_waiting_readers_each_ask", rule: 11, does: "readers that wait do not join the lease that the first of them gets",
		hunks: []hunk{{"guard/handoff.go", "w == nil || !w.Call().set.joins()", "w == nil || w.Call() != nil"}},
		pkg:   "guard", test: "TestShared_readersOfAProcessHaveOneLease",
	},
	{
		name: "mutant_wanted_is_ignored", rule: 27, does: "a store grants shared claims while a writer is wanted",
		hunks: []hunk{{"backend/internal/holders/holders.go", `return k.Wanted.ID != "" && k.Wanted.ID != c.ID && MaxHolders(c) > k.Wanted.MaxHolders`, "return false"}},
		pkg:   "backend/memory", test: "TestLocker/a_claim_that_waits_keeps_later_readers_out",
	},
	{
		name: "mutant_writer_is_not_wanted", rule: 27, does: "a waiting writer does not tell the store that it waits",
		hunks: []hunk{{"guard/wait.go", "return driver.Retried", "return driver.Unqueued"}},
		pkg:   "guard", test: "TestShared_aWriterThatLeavesLetsReadersIn",
	},
	{
		name: "mutant_writer_leaves_a_trace", rule: 5, does: "a writer that gives up does not withdraw its claim",
		hunks: []hunk{{"guard/ask.go", "|| grant.Reason == driver.HeldForClaim)", "|| false)"}},
		pkg:   "guard", test: "TestShared_aWriterThatLeavesLetsReadersIn",
	},
	{
		name: "mutant_a_claim_that_waits_is_new", rule: 27, does: "a store is not told that it may have refused a claim for those that share",
		hunks: []hunk{{"guard/ask.go", "	a.claim.Repeated = a.late || a.stored == storedQueued\n", ""}},
		pkg:   "backend/single", test: "TestSharing_aWriterThatWaitedLeavesNothingBehind",
	},
	{
		name: "mutant_a_claim_is_withdrawn_as_if_new", rule: 5, does: "a store is not told that a claim which it withdraws may be wanted",
		hunks: []hunk{{"guard/cleaner.go", "	o.claim.Repeated = true\n", ""}},
		pkg:   "guard", test: "TestShared_aClaimThatIsWithdrawnWasThereBefore",
	},
	{
		name: "mutant_wanted_outlasts_its_release", rule: 27, does: "a claim that was withdrawn is still wanted",
		hunks: []hunk{{"backend/internal/holders/holders.go", "	if k.Wanted.ID == id {\n		k.Wanted = Wanted{}\n	}\n", ""}},
		pkg:   "backend/memory", test: "TestLocker/a_claim_that_was_wanted_and_has_gone_keeps_nobody_out",
	},
	{
		name: "mutant_larger_keys_are_kept", rule: 23, does: "a call for several keys keeps larger keys while it waits for a smaller one",
		hunks: []hunk{{"guard/multiacquire.go", "s.releaseKeys(func(k *keyState) bool { return k.stored > first.stored })", ""}},
		pkg:   "guard", test: "TestDoAll_waitsHoldingSmallerKeysOnly",
	},
	{
		name: "mutant_keys_in_the_order_of_the_call", rule: 23, does: "several keys are taken in the order in which the call names them",
		hunks: []hunk{{"guard/multiacquire.go", "return cmp.Compare(a.stored, b.stored)", "return 0 * cmp.Compare(a.stored, b.stored)"}},
		pkg:   "guard", test: "TestAcquireAll_allKeysAreLostTogether",
	},
	{
		name: "mutant_some_of_several_keys", rule: 23, does: "a call that does not get all of its keys keeps some",
		hunks: []hunk{{"guard/multiacquire.go", "{ s.releaseKeys(func(*keyState) bool { return true }) }", "{}"}},
		pkg:   "guard", test: "TestDoAll_refusesWithoutWaiting",
	},
	{
		name: "mutant_context_of_one_key", rule: 2, does: "the context of several keys ends with the lease of the last one only",
		hunks: []hunk{{"guard/leases.go", "joined, end := h.joined(l.ctx)", "joined, end := l.holders[len(l.holders)-1].joined(l.ctx)"}},
		pkg:   "guard", test: "TestAcquireAll_allKeysAreLostTogether",
	},
	{
		name: "mutant_loss_of_a_key_not_reported", rule: 8, does: "DoAll does not report a lost key if the release of another had no answer",
		hunks: []hunk{{"guard/multiacquire.go", "return errors.Join(results...)", "return cmp.Or(results...)"}},
		pkg:   "guard", test: "TestDoAll_reportsALossBesideAnErrorOfTheStore",
	},
	{
		name: "mutant_end_of_a_joined_lease_not_reported", rule: 8, does: "DoAll reports the end of the last key's lease only",
		hunks: []hunk{{"guard/run.go", "range r.others {", "range r.others[:0] {"}},
		pkg:   "guard", test: "TestDoAll_reportsTheEndOfAJoinedLease",
	},
	{
		name: "mutant_one_request_for_each_key", rule: 17, does: "several keys are asked for one by one",
		hunks: []hunk{{"guard/multiacquire.go", "if s.guard.async == nil {", "if s.guard.async == nil || len(keys) > 0 {"}},
		pkg:   "guard", test: "TestAcquireAll_goesOutTogether",
	},

	// on backend/reentrant
	{
		name: "mutant_reentrant_one_holder_too_many", rule: 27, does: "a key has one owner more than its claims allow",
		hunks: []hunk{{"backend/reentrant/shared_acquire.lua", "if count >= limit or", "if count > limit or"}},
		pkg:   "backend/reentrant", test: "TestSharing_ofOwners",
	},
	{
		name: "mutant_reentrant_each_hold_counts", rule: 27, does: "each hold of an owner counts as a holder",
		hunks: []hunk{{"backend/reentrant/shared.lua", "        if not last[owner] then\n          count = count + 1\n        end\n", "        count = count + 1\n"}},
		pkg:   "backend/reentrant", test: "TestSharing_ofOwners",
	},
	{
		name: "mutant_reentrant_own_limit_alone_counts", rule: 27, does: "a claim is granted by its own limit, whatever the holders allow",
		hunks: []hunk{{"backend/reentrant/shared_acquire.lua", "limit, mark = math.min(max_holders, smallest), read_wanted()", "limit, mark = max_holders, read_wanted()"}},
		pkg:   "backend/reentrant", test: "TestSharing_ofOwners",
	},
	{
		name: "mutant_reentrant_alone_among_others", rule: 27, does: "a claim for a key alone does not see those that share it",
		hunks: []hunk{{"backend/reentrant/acquire.lua", "if others.S or others.M then", "if false then"}},
		pkg:   "backend/reentrant", test: "TestSharing_ofOwners",
	},
	{
		name: "mutant_reentrant_minimum_hold_is_its_owners", rule: 27, does: "an owner enters again because of a minimum hold",
		hunks: []hunk{{"backend/reentrant/shared.lua", "for _, list in ipairs({all.held, all.shared}) do", "for _, list in ipairs({all.held, all.shared, all.kept}) do"}},
		pkg:   "backend/reentrant", test: "TestSharing_aMinimumHoldIsAHolderButNotItsOwners",
	},
	{
		name: "mutant_reentrant_upgrade_keeps_its_fence", rule: 9, does: "an owner that shared a key has it alone under the fence of before",
		hunks: []hunk{{"backend/reentrant/shared_acquire.lua", "return #mine > 0 and max_holders >= smallest and fence", "return #mine > 0 and fence"}},
		pkg:   "backend/reentrant", test: "TestSharing_anOwnerThatGetsTheKeyAloneHasALargerFence",
	},
	{
		name: "mutant_reentrant_seat_of_another", rule: 27, does: "a claim has a seat that another holder has",
		hunks: []hunk{{"backend/reentrant/shared_acquire.lua", "taken[hold.seat or 0] = true", "taken[0] = true"}},
		pkg:   "backend/reentrant", test: "TestSharing_seatsOfOwners",
	},
	{
		name: "mutant_reentrant_owner_waits_for_itself", rule: 27, does: "an owner is kept away for a claim that waits for it",
		hunks: []hunk{{"backend/reentrant/shared_acquire.lua", "return #mine == 0 and keeps_away(mark, id, max_holders)", "return keeps_away(mark, id, max_holders)"}},
		pkg:   "backend/reentrant", test: "TestSharing_anOwnerEntersAgainWhateverOthersWait",
	},
	{
		name: "mutant_reentrant_wanted_is_ignored", rule: 27, does: "shared claims are granted while a writer is wanted",
		hunks: []hunk{{"backend/internal/redisstore/wanted.lua", "return mark and mark.id ~= id and max_holders > mark.max_holders", "return false"}},
		pkg:   "backend/reentrant", test: "TestSharing_anOwnerEntersAgainWhateverOthersWait",
	},
	{
		name: "mutant_reentrant_wanted_for_ever", rule: 27, does: "a claim that was withdrawn is still wanted",
		hunks: []hunk{{"backend/internal/redisstore/wanted.lua", "  redis.call('DEL', wanted)\n", ""}},
		pkg:   "backend/reentrant", test: "TestSharing_leavesNothingBehind",
	},
	{
		name: "mutant_reentrant_dead_holders_remain", rule: 27, does: "holders that have died are never removed from a key that others use",
		hunks: []hunk{{"backend/reentrant/shared_acquire.lua", "remove(others.ended[i])", "local _ = i"}},
		pkg:   "backend/reentrant", test: "TestSharing_forgetsHoldersThatHaveDied",
	},
	{
		name: "mutant_reentrant_renewal_ends_others", rule: 3, does: "a renewal has the key end before the lease of another holder",
		hunks: []hunk{{"backend/reentrant/renew.lua", "return math.max(from_now(ms), hold.ends)", "return hold.ends"}},
		pkg:   "backend/reentrant", test: "TestSharing_theKeyLastsAsLongAsTheLongestNeeds",
	},
	{
		name: "mutant_reentrant_shares_with_java", rule: 27, does: "a shared claim does not see Redisson's hold",
		hunks: []hunk{{"backend/reentrant/claim.lua", "  if field then\n", "  if field and false then\n"}},
		pkg:   "backend/reentrant", test: "TestSharing_aKeyThatRedissonOrAnApplicationHoldsIsBusy",
	},
	{
		name: "mutant_reentrant_release_wakes_nobody", rule: 12, does: "the release of one of several holders notifies nobody",
		hunks: []hunk{{"backend/reentrant/shared_release.lua", "or count < limit and (before < ANY or mark) then", "then"}},
		pkg:   "backend/reentrant", test: "TestSharing_publishesReleasesThatMatter",
	},

	// on backend/redlock
	{
		name: "mutant_grant_under_a_late_release", rule: 5, does: "a quorum counts a node where an earlier release of the claim may still arrive",
		hunks: []hunk{{"backend/redlock/acquire.go", "if b.order.at[n.index].releasing.Load() > 0 {", "if false {"}},
		pkg:   "backend/redlock", test: "TestTryAcquire_doesNotCountANodeWhereTheClaimMayBeReleasedYet",
	},
}
