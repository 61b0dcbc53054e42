package inspect

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/guard"
)

// A Process in JSON. A key that is not UTF-8 would lose its bytes there, so it has key_bytes, too.
type (
	plainProcess Process // without its methods
	processJSON  struct {
		plainProcess

		Held []leaseJSON `json:"held,omitempty"` // instead of that of plainProcess
	}
	leaseJSON struct {
		guard.HeldLease

		KeyBytes []byte `json:"key_bytes,omitempty"`
	}
)

// MarshalJSON adds key_bytes, in Base64, to each lease whose key is not UTF-8.
func (p Process) MarshalJSON() ([]byte, error) {
	out := processJSON{plainProcess: plainProcess(p)}
	for _, l := range p.Held {
		held := leaseJSON{HeldLease: l}
		if !utf8.ValidString(l.Key) {
			held.KeyBytes = []byte(l.Key)
		}
		out.Held = append(out.Held, held)
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON has written.
func (p *Process) UnmarshalJSON(text []byte) error {
	var in processJSON
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*p = Process(in.plainProcess)
	for _, l := range in.Held {
		if l.KeyBytes != nil {
			l.Key = string(l.KeyBytes)
		}
		p.Held = append(p.Held, l.HeldLease)
	}
	return nil
}
