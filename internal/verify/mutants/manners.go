package main

// manners breaks rules 19 to 24: settings, hooks, Close, output, exits, and errors.
var manners = []mutant{
	{
		name: "mutant_setting_is_clamped", rule: 19, does: "a TTL that is too short is raised to the minimum",
		hunks: []hunk{{"guard/options.go", "s.refuse(\"WithTTL\", ttl, fmt.Sprintf(\"must be at least %v\", MinTTL))\n\t\t\treturn\n", "ttl = MinTTL\n"}},
		pkg:   "guard", test: "TestOptions_badValuesAreRefusedByName",
	},
	{
		name: "mutant_key_without_limit", rule: 19, does: "the length of a key has no limit",
		hunks: []hunk{{"guard/driver/key.go", "case len(key) > MaxKey:", "case false:"}},
		pkg:   "guard", test: "TestKeys_thatCannotBeUsedAreRefused",
	},
	{
		name: "mutant_hooks_panic", rule: 20, does: "a panic of a hook reaches the caller",
		hunks: []hunk{{"guard/hook.go", "defer func() { _ = recover() }()\n\tf(&hs[0])", "f(&hs[0])"}},
		pkg:   "guard", test: "TestHook_thatPanicsIsContained",
	},
	{
		name: "mutant_hook_before_the_release", rule: 20, does: "hooks are called for the end of a run before its lease is released",
		hunks: []hunk{{"guard/run.go", "own.begin(", "r.report(err)\n\t\town.begin("}},
		pkg:   "guard", test: "TestHook_cannotDelayReleaseOrRenewal",
	},
	{
		name: "mutant_close_does_not_wait", rule: 21, does: "Close revokes leases at once",
		hunks: []hunk{{"guard/close.go", "if !g.active.await(ctx) {\n\t\trevoked", "if true {\n\t\trevoked"}},
		pkg:   "guard", test: "TestClose_refusesNewWorkAndWaitsForTheRuns",
	},
	{
		name: "mutant_open_when_closed", rule: 21, does: "a closed Guard accepts new work",
		hunks: []hunk{
			{"guard/acquire.go", "if g.isClosed() {\n\t\treturn nil, &ClosedError{Key: key}\n\t}\n", ""},
			{"guard/ask.go", "if !valid || g.isClosed() ||", "if !valid ||"},
		},
		pkg: "guard", test: "TestClose_refusesNewWorkAndWaitsForTheRuns",
	},
	{
		name: "mutant_logs", rule: 22, does: "the engine writes to the program's log",
		hunks: []hunk{
			{"guard/close.go", "\"fmt\"\n", "\"fmt\"\n\t\"log\"\n"},
			{"guard/close.go", "revoked := 0\n", "log.Print(\"guard: close\")\n\trevoked := 0\n"},
		},
		pkg: "guard", test: "TestGuard_writesNothing",
	},
	{
		name: "mutant_poisoned_queue", rule: 23, does: "a call whose Locker panics stays in the queue",
		hunks: []hunk{{"guard/acquire.go", "a.late = a.late || a.stored == storedUnknown\n\ta.leave()\n", "a.late = a.late || a.stored == storedUnknown\n"}},
		pkg:   "guard", test: "TestExits",
	},
	{
		name: "mutant_close_forgets", rule: 23, does: "Close does not wait until orphans are released",
		hunks: []hunk{{"guard/close.go", "if !g.active.await(rest) || !g.background.await(rest) {", "if !g.active.await(rest) {"}},
		pkg:   "guard", test: "TestClose_releasesLeasesGrantedMeanwhile",
	},
	{
		name: "mutant_refused_looks_revoked", rule: 24, does: "the error of a refused call says that the function ran",
		hunks: []hunk{{"guard/errors.go", "func (e *ClosedError) Ran() bool { return e.ran }", "func (e *ClosedError) Ran() bool { return true }"}},
		pkg:   "guard", test: "TestRan_isCorrectForEveryErrorOfDo",
	},
}
