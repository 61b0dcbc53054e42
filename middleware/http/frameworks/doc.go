// Package frameworks has recipes that put guardhttp into gin and echo, whose middleware is not a
// func(http.Handler) http.Handler, and an example for each of chi, gin and echo. Another recipe is
// an interceptor for Connect. Its tests put guardhttp behind frameworks, proxies and buffers.
//
// Copy a recipe into your service. Do not import this module: it requires all of these frameworks.
package frameworks
