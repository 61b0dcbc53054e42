// Package browser opens the page for operators (inspect/web) in Chromium, without a window. All of
// it is in the tests.
//
// Each view is opened in light and dark mode, on a wide screen and on a phone. checks.js looks at
// what the browser made of it: contrast, labels, headings, names, and scrolling. The tests act as
// an operator does, by mouse and by keyboard. The browser may report no error, no violation of the
// Content-Security-Policy, and no request that fails or leaves the origin.
//
//	go test ./internal/verify/browser                (make tools first)
//	go run ./internal/verify/cmd/proof screenshots   writes the pictures of docs/operate.md
package browser
