package main

// manners breaks rules 19 to 22: settings, hooks, the end, and what a library keeps to itself.
var manners = []mutant{
	{
		name: "mutant_setting_is_clamped", rule: 19, does: "a TTL that is too short is made the shortest there is",
		hunks: []hunk{{"guard/options.go", "s.refuse(\"WithTTL\", ttl, fmt.Sprintf(\"must be at least %v\", MinTTL))\n\t\t\treturn\n", "ttl = MinTTL\n"}},
		pkg:   "guard", test: "TestOptions_thatCannotWorkAreRefusedByName",
	},
	{
		name: "mutant_key_without_limit", rule: 19, does: "a key may be as long as it likes",
		hunks: []hunk{{"guard/key.go", "case len(key) > MaxKey:", "case false:"}},
		pkg:   "guard", test: "TestKeys_thatCannotBeUsedAreRefused",
	},
	{
		name: "mutant_hooks_panic", rule: 20, does: "the panic of a hook goes through to the caller",
		hunks: []hunk{{"guard/hook.go", "defer func() { _ = recover() }()\n\tf(ctx, *e)", "f(ctx, *e)"}},
		pkg:   "guard", test: "TestHook_thatPanicsIsIgnored",
	},
	{
		name: "mutant_hook_before_the_release", rule: 20, does: "hooks are told of the end of a run before its lease is given back",
		hunks: []hunk{{"guard/run.go", "r.stop()\n\t\tback := h.giveBack(", "r.stop()\n\t\tr.report(err)\n\t\tback := h.giveBack("}},
		pkg:   "guard", test: "TestHook_cannotHoldUpReleaseOrRenewal",
	},
	{
		name: "mutant_close_does_not_wait", rule: 21, does: "Close takes leases back at once",
		hunks: []hunk{{"guard/close.go", "if !g.await(ctx, &g.active) {", "if true {"}},
		pkg:   "guard", test: "TestClose_refusesNewWorkAndWaitsForTheRuns",
	},
	{
		name: "mutant_open_when_closed", rule: 21, does: "a Guard that was closed takes new work",
		hunks: []hunk{{"guard/guard.go", "if g.closed {\n\t\treturn false\n\t}\n", ""}, {"guard/acquire.go", "if g.closed {\n\t\treturn &ClosedError{Key: a.key}\n\t}\n", ""}},
		pkg:   "guard", test: "TestClose_refusesNewWorkAndWaitsForTheRuns",
	},
	{
		name: "mutant_logs", rule: 22, does: "the engine writes to the program's log",
		hunks: []hunk{{"guard/close.go", "\"fmt\"\n", "\"fmt\"\n\t\"log\"\n"}, {"guard/close.go", "var err error\n", "log.Print(\"guard: close\")\n\tvar err error\n"}},
		pkg:   "guard", test: "TestGuard_writesNothing",
	},
}
