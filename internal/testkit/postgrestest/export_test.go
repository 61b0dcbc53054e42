package postgrestest

// Programs is for tests.
var Programs = programs
