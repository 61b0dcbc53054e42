package guardriver_test

import (
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyNoLeaks(m) }
