package main

// operating breaks rule 29: what an operator changes.
var operating = []mutant{
	{
		name: "mutant_break_frees_the_key", rule: 29, does: "a key whose lease was broken is free at once",
		hunks: []hunk{{"backend/internal/holders/decide.go", "h.ID, h.Label, h.Released = b.ID, b.Label, true", "k.Remove(id)"}},
		pkg:   "inspect", test: "TestBreak_endsTheRunBeforeAnotherBegins",
	},
	{
		name: "mutant_break_hits_any_holder", rule: 29, does: "a lease is broken whoever holds it",
		hunks: []hunk{{"backend/internal/holders/decide.go", "	h := k.Find(id)\n	switch {\n	case k.Done:", "	h := k.Find(id)\n	if len(k.Holders) > 0 {\n		h = &k.Holders[0]\n		id = h.ID\n	}\n	switch {\n	case k.Done:"}},
		pkg:   "inspect", test: "TestBreak_hitsNoLaterHolder",
	},
	{
		name: "mutant_holder_of_a_broken_lease_renews", rule: 29, does: "the holder of a broken lease goes on",
		hunks: []hunk{{"backend/internal/holders/decide.go", "h.ID, h.Label, h.Released = b.ID, b.Label, true", "h.Label = b.Label"}},
		pkg:   "inspect", test: "TestBreak_endsTheRunBeforeAnotherBegins",
	},
	{
		name: "mutant_change_without_a_record", rule: 29, does: "a change is made although it cannot be recorded",
		hunks: []hunk{{"inspect/operations.go", "	if err := record(ctx, g, o); err != nil {\n		return false, err\n	}\n", "	_ = record(ctx, g, o)\n"}},
		pkg:   "inspect", test: "TestChanges_areNotMadeIfTheyCannotBeRecorded",
	},
	{
		name: "mutant_minority_is_broken", rule: 29, does: "a claim counts as broken if one node of a quorum has broken it",
		hunks: []hunk{{"backend/redlock/tally.go", "case held >= l.quorum:", "case held > 0:"}},
		pkg:   "backend/redlock", test: "TestInspect_ofAQuorum",
	},
	{
		name: "mutant_forgotten_marker_left", rule: 29, does: "a done marker is left on a node of a quorum, and the caller gets no error",
		hunks: []hunk{{"backend/redlock/inspect.go", "if answered(got) < len(l.nodes) {", "if answered(got) == 0 {"}},
		pkg:   "backend/redlock", test: "TestForget_saysThatAMarkerMayBeLeft",
	},
	{
		name: "mutant_page_acts_for_all", rule: 29, does: "the page acts for those who may only look",
		hunks: []hunk{{"inspect/web/actions.go", "	if !ok {\n		h.write(w, r, 0, \"\", nil, errForbidden)\n		return\n	}\n", "	_ = ok\n"}},
		pkg:   "inspect/web", test: "TestActions_areRefusedToOthers",
	},
	{
		name: "mutant_page_acts_for_other_origins", rule: 29, does: "the page acts on forms of other origins",
		hunks: []hunk{{"inspect/web/web.go", "protection.Handler(h.parsed(form))", "h.parsed(form)"}},
		pkg:   "inspect/web", test: "TestActions_areRefusedToOthers",
	},
}
