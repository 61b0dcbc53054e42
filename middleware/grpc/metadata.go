package guardgrpc

import (
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// neverReplayed reports whether metadata is not recorded: that of one connection, that which gRPC
// sets itself, and secrets of the call that got them.
func neverReplayed(name string) bool {
	return strings.HasPrefix(name, "grpc-") || name == "content-type" || idempotent.NeverReplayed(name)
}

// replayable adds to recorded what of md a replay has, too. It returns recorded. without are the
// names of WithoutMetadata.
func replayable(recorded, md metadata.MD, without []string) metadata.MD {
	for name, values := range md {
		name = strings.ToLower(name)
		if !validName(name) || neverReplayed(name) || slices.Contains(without, name) {
			continue
		}
		if recorded == nil {
			recorded = metadata.MD{}
		}
		recorded[name] = append(recorded[name], values...)
	}
	return recorded
}

// validName reports whether metadata can have that name, by the specification of gRPC over HTTP/2.
func validName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-.") == ""
}

// validValue reports whether metadata can have that value: any bytes if it is binary, and
// otherwise printable ASCII.
func validValue(name, value string) bool {
	if strings.HasSuffix(name, "-bin") {
		return true
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}
