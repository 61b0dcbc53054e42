package guardgrpc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// FromField returns a KeyFunc that takes a field of the request message, by its name in the .proto
// file, or, with more names, of the messages inside it. FromField("request_id") takes the request
// IDs of AIP-155. The field has to be a string or an integer. The empty string and the number 0
// count as missing. A message that has no such field is the server's mistake. It panics without a
// name.
func FromField(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	keys.MustName("guardgrpc: FromField", names...)
	from := place("field " + strings.Join(names, "."))
	return func(_ context.Context, _ *grpc.UnaryServerInfo, req any) (string, error) {
		m, ok := messageOf(req)
		if !ok {
			return "", fmt.Errorf("guardgrpc: FromField: a %T is no proto.Message", req)
		}
		key, err := fieldOf(m, names)
		if err != nil {
			return "", err
		}
		return from.found(keys.Found(key))
	}
}

// fieldOf returns the value at the end of a path of fields, or "" if it is not set.
func fieldOf(m proto.Message, names []string) (string, error) {
	at := m.ProtoReflect()
	for i, name := range names {
		field := at.Descriptor().Fields().ByName(protoreflect.Name(name))
		last := i == len(names)-1
		switch {
		case field == nil || field.IsList() || field.IsMap() || !last && field.Message() == nil:
			return "", fmt.Errorf("guardgrpc: FromField: %s has no field %q of a fitting kind", at.Descriptor().FullName(), name)
		case last:
			return text(at.Descriptor(), field, at.Get(field))
		}
		at = at.Get(field).Message()
	}
	return "", nil
}

// text returns the value of a field as text.
func text(in protoreflect.MessageDescriptor, field protoreflect.FieldDescriptor, value protoreflect.Value) (string, error) {
	switch v := value.Interface().(type) {
	case string:
		return v, nil
	case int32, int64:
		return number(strconv.FormatInt(value.Int(), 10)), nil
	case uint32, uint64:
		return number(strconv.FormatUint(value.Uint(), 10)), nil
	}
	return "", fmt.Errorf("guardgrpc: FromField: the field %q of %s is neither a string nor an integer", field.Name(), in.FullName())
}

func number(s string) string {
	if s == "0" {
		return ""
	}
	return s
}
