package guardasynq_test

import (
	"testing"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/internal/testkit/adaptertest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// Two texts of which one would be taken for a repeat of the other.
func TestKeys_noTwoTextsAreOneKey(t *testing.T) {
	t.Parallel()
	inJSON := func(text string) *asynq.Task { return asynq.NewTask("import", []byte(`{"order":"`+text+`"}`)) }
	inHeader := func(text string) *asynq.Task {
		return asynq.NewTaskWithHeaders("import", []byte(`{"order":"1"}`), map[string]string{"Order": text})
	}
	for name, c := range map[string]struct {
		texts []string
		key   guardasynq.KeyFunc
		task  func(text string) *asynq.Task
	}{
		"FromJSON":    {adaptertest.JSONStrings(), guardasynq.FromJSON("order"), inJSON},
		"FromPayload": {adaptertest.Texts(), guardasynq.FromPayload(), func(text string) *asynq.Task { return asynq.NewTask("import", []byte(text)) }},
		"FromHeader":  {adaptertest.Texts(), guardasynq.FromHeader("Order"), inHeader},
		"Join":        {adaptertest.JSONStrings(), guardasynq.Join(guardasynq.FromType(), guardasynq.FromJSON("order")), inJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Distinct(t, c.texts, func(text string) (string, error) { return aqKeyOf(t, c.key, c.task(text)) })
		})
	}
}
