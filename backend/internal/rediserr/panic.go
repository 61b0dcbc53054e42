package rediserr

import "fmt"

// A HookPanic is the panic of a hook of the client.
type HookPanic struct{ Value any }

func (p *HookPanic) Error() string { return fmt.Sprintf("a hook of the client panicked: %v", p.Value) }

// Recovered returns what f returns, or a *HookPanic if a hook of the client panics. It is for
// goroutines of our own, in which a panic would end the process.
func Recovered(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &HookPanic{p}
		}
	}()
	return f()
}
