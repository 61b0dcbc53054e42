package main

// The folders of the tests of the backends on SQL, and rows of theirs.
const (
	onMySQL  = "internal/verify/mysql"
	onSQLite = "internal/verify/sqlite"
	fenceRow = "TestStore/a_fence_is_checked_in_the_transaction_of_the_user/"
	awayRow  = fenceRow + "nobody_is_granted_the_key_before_the_transaction_has_ended"
	oldRow   = "TestStore/rows_that_nothing_needs_are_deleted"
)

// sql breaks the backends on SQL, and what they share.
var sql = []mutant{
	{
		name: "mutant_mysql_grant_ignores_the_version", rule: 3, does: "MySQL writes a grant although the row has changed since it was read",
		hunks: []hunk{
			{"backend/mysql/grant.sql", "AND r.version = ?", "AND (r.version = ? OR TRUE)"},
			{"backend/mysql/grant.sql", "WHERE r.version = ?", "WHERE (r.version = ? OR TRUE)"},
		},
		pkg: onMySQL, test: "TestStore/one_of_the_claims_that_meet_on_a_key_is_granted",
	},
	{
		name: "mutant_mysql_release_of_any_claim", rule: 6, does: "MySQL releases whatever claim holds the key",
		hunks: []hunk{{"backend/mysql/release.sql", "AND id = ?", "AND (id = ? OR TRUE)"}},
		pkg:   onMySQL, test: "TestSuite/a_release_by_another_claim_is_refused",
	},
	{
		name: "mutant_mysql_renewal_of_any_claim", rule: 3, does: "MySQL renews whatever claim holds the key",
		hunks: []hunk{{"backend/mysql/renew.sql", "AND id = ?", "AND (id = ? OR TRUE)"}},
		pkg:   onMySQL, test: "TestSuite/a_renewal_by_another_claim_is_refused",
	},
	{
		name: "mutant_mysql_renewal_raises_no_fence", rule: 9, does: "a renewal on MySQL does not raise the fence",
		hunks: []hunk{{"backend/mysql/renew.sql", "GREATEST(fence, ?)", "IF(?, fence, fence)"}},
		pkg:   onMySQL, test: "TestSuite/a_renewal_raises_the_fence",
	},
	{
		name: "mutant_mysql_renewal_on_a_replica", rule: 2, does: "MySQL renews on a server that was made read-only, for an administrator",
		hunks: []hunk{{"backend/mysql/renew.sql", " AND WRITABLE", ""}},
		pkg:   onMySQL, test: "TestReadOnly_countsForAnAdministratorToo",
	},
	{
		name: "mutant_mysql_check_locks_no_gate", rule: 9, does: "a check of a fence on MySQL does not lock the gate",
		hunks: []hunk{{"backend/mysql/gate.sql", " LOCK IN SHARE MODE", ""}},
		pkg:   onMySQL, test: awayRow,
	},
	{
		name: "mutant_mysql_grant_passes_the_gate", rule: 9, does: "a grant on MySQL neither locks the gate nor notes itself in it",
		hunks: []hunk{{"backend/mysql/grant.sql", "g.granted = ?", "r.granted = ?"}},
		pkg:   onMySQL, test: fenceRow + "a_transaction_that_has_read_before_cannot_pass_for_a_holder",
	},
	{
		name: "mutant_mysql_clock_of_the_caller", rule: 10, does: "MySQL compares with the caller's clock",
		hunks: []hunk{
			{"backend/mysql/place.go", `"CLOCK", now,`, `"CLOCK", strconv.FormatInt(time.Now().UnixMicro(), 10),`},
			{"backend/mysql/place.go", "\t\"strconv\"\n", "\t\"strconv\"\n\t\"time\"\n"},
		},
		pkg: onMySQL, test: "TestSuite/an_expired_claim_makes_way_for_another",
	},
	{
		name: "mutant_mysql_clean_forgets_fences", rule: 9, does: "Clean on MySQL deletes rows whose fence is ahead of the clock",
		hunks: []hunk{
			{"backend/mysql/old.sql", "last >> 20 < CLOCK DIV 1000000", "TRUE"},
			{"backend/mysql/forget.sql", "r.last >> 20 < CLOCK DIV 1000000", "TRUE"},
		},
		pkg: onMySQL, test: oldRow,
	},
	{
		name: "mutant_sqlite_begins_without_the_lock", rule: 3, does: "a transaction of SQLite begins before it is the writer, so its write fails instead of waiting",
		hunks: []hunk{{"backend/sqlite/writer.go", "`BEGIN IMMEDIATE`", "`BEGIN`"}},
		pkg:   onSQLite, test: "TestFull_failsOnlyWhatNeedsRoom",
	},
	{
		name: "mutant_sqlite_check_locks_nothing", rule: 9, does: "a check of a fence on SQLite only reads",
		hunks: []hunk{{"backend/sqlite/lock.sql", "UPDATE onerun_leases SET version = version WHERE key = ?1\nRETURNING version, state, id, label, fence, last, ends, record, sharing", "SELECT version, state, id, label, fence, last, ends, record, sharing FROM onerun_leases WHERE key = ?1"}},
		pkg:   onSQLite, test: awayRow,
	},
	{
		name: "mutant_sqlite_looks_for_no_other_writers", rule: 12, does: "SQLite does not ask whether another connection has written",
		hunks: []hunk{{"backend/sqlite/keys.go", "`PRAGMA data_version`", "`SELECT 1`"}},
		pkg:   onSQLite, test: "TestSubscribe_noticesWhatAnotherConnectionWrites",
	},
	{
		name: "mutant_sqlite_clean_forgets_fences", rule: 9, does: "Clean on SQLite deletes rows whose fence is ahead of the clock",
		hunks: []hunk{{"backend/sqlite/clean.sql", "last >> 20 < ?2 / 1000000", "last IS NOT NULL"}},
		pkg:   onSQLite, test: oldRow,
	},
	{
		name: "mutant_sql_check_takes_any_fence", rule: 9, does: "the check of a fence in a user's transaction takes one that was replaced",
		hunks: []hunk{{"backend/internal/sqlstore/fence.go", "c.Fence < h.First || ", ""}},
		pkg:   onSQLite, test: fenceRow + "a_reserved_fence_replaces_the_one_before",
	},
	{
		name: "mutant_sql_check_registers_nothing", rule: 9, does: "a fence after a hand-off does not replace those before it in the store",
		hunks: []hunk{{"backend/internal/sqlstore/fence.go", "h.Use(c.Fence, 0)\n\t\tif err := registrar", "if err := registrar"}},
		pkg:   onSQLite, test: fenceRow + "a_reserved_fence_replaces_the_one_before",
	},
	{
		name: "mutant_sql_row_that_was_deleted_starts_at_the_clock", rule: 9, does: "a key without a row is granted the clock, which may be below its last fence",
		hunks: []hunk{{"backend/internal/sqlstore/row.go", "r.Last = holders.Clock(r.Now) + holders.Ahead - 1", "r.Last = 0"}},
		pkg:   onSQLite, test: "TestSuite/reserved_fences_are_below_those_after_a_flush",
	},
	{
		name: "mutant_sql_transactions_take_the_pool", rule: 2, does: "transactions of InTx can take all connections, so that renewals wait",
		hunks: []hunk{{"backend/internal/sqlstore/fence.go", "	if err := l.transactions.enter(ctx, driver.OpInspect); err != nil {\n		return nil, l.storeError(driver.OpInspect, \"\", err)\n	}\n	defer l.transactions.leave(driver.OpInspect)\n", ""}},
		pkg:   onMySQL, test: "TestStore/transactions_of_the_application_leave_a_connection_to_renewals",
	},
}
