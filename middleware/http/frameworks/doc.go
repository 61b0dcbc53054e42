// Package frameworks has recipes that put guardhttp into frameworks whose middleware is not a
// func(http.Handler) http.Handler, and tests of guardhttp behind frameworks, proxies and buffers.
// Copy a recipe into your service: this module is not meant to be imported, because it requires
// all of these frameworks.
package frameworks
