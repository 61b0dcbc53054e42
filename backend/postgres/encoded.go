package postgres

import (
	"encoding/base64"
	"fmt"
)

// An encoded is a bytea that a statement answers in base64. Some drivers get a bytea as a text in
// some of their modes, and read only one of the two forms that the server's bytea_output can give
// it.
type encoded []byte

// Scan implements sql.Scanner.
func (e *encoded) Scan(value any) (err error) {
	*e = nil
	switch v := value.(type) {
	case nil:
	case string:
		*e, err = base64.StdEncoding.DecodeString(v)
	case []byte:
		*e, err = base64.StdEncoding.DecodeString(string(v))
	default:
		err = fmt.Errorf("a %T in the place of base64", v)
	}
	return err
}
