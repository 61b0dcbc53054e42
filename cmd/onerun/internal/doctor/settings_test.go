package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/doctor"
)

// The tests of the command examine real servers. These versions are not at hand there.
func TestVersion(t *testing.T) {
	for version, want := range map[string]doctor.Check{
		"6.0.16": {Name: "version", State: doctor.Problem, Text: "Redis 6.0.16: the backends need 6.2"},
		"5.0.14": {Name: "version", State: doctor.Problem, Text: "Redis 5.0.14: the backends need 6.2"},
		"6.2.0":  {Name: "version", State: doctor.OK, Text: "Redis 6.2.0"},
		"10.0.0": {Name: "version", State: doctor.OK, Text: "Redis 10.0.0"},
	} {
		require.Equal(t, []doctor.Check{want}, doctor.CheckVersion(map[string]string{"redis_version": version}))
	}
	valkey := map[string]string{"redis_version": "7.2.4", "valkey_version": "8.1.0"}
	require.Equal(t, "Valkey 8.1.0, compatible with Redis 7.2.4", doctor.CheckVersion(valkey)[0].Text)
	require.Equal(t, doctor.Unknown, doctor.CheckVersion(nil)[0].State)
}
