// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

// Type names an event: package and type, as "hmc.StalePD".
func Type(event any) string { return reflect.TypeOf(event).String() }

// Fields is an event's exported fields as a JSON object, for programs: the text
// of its String method is for people. Names are those of the struct, fields of
// an embedded one among them. Values of 64 bits are strings in hexadecimal, as
// they are words and addresses, and as JSON's numbers hold 53 bits in many
// readers; errors and values with a name (states, object types) are strings;
// arrays of bytes are strings of hexadecimal digits.
func Fields(event any) json.RawMessage {
	b := appendValue(nil, reflect.ValueOf(event), 0)
	if len(b) == 0 || b[0] != '{' { // no struct
		return json.RawMessage(`{"Value":` + string(b) + `}`)
	}
	return b
}

// maxDepth ends what refers to itself.
const maxDepth = 8

var (
	errorType    = reflect.TypeFor[error]()
	stringerType = reflect.TypeFor[fmt.Stringer]()
)

func appendValue(b []byte, v reflect.Value, depth int) []byte {
	if !v.IsValid() || depth > maxDepth || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		return append(b, "null"...)
	}
	if v.Type().Implements(errorType) {
		return appendString(b, v.Interface().(error).Error())
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.Kind() == reflect.Interface && v.Elem().Kind() == reflect.Struct && !v.Elem().Type().Implements(errorType) {
			b = append(b, `{"Type":`...)
			b = appendString(b, v.Elem().Type().String())
			b = append(b, `,"Event":`...)
			return append(appendValue(b, v.Elem(), depth+1), '}')
		}
		return appendValue(b, v.Elem(), depth+1)
	case reflect.Struct:
		b = append(b, '{')
		b, _ = appendFields(b, v, depth, true)
		return append(b, '}')
	case reflect.Map, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return append(b, "null"...) // no event has one
	}
	if v.Type().Implements(stringerType) {
		return appendString(b, v.Interface().(fmt.Stringer).String())
	}
	switch v.Kind() {
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10)
	case reflect.Uint64, reflect.Uintptr:
		return fmt.Appendf(b, `"%#x"`, v.Uint())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return strconv.AppendUint(b, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		return strconv.AppendFloat(b, v.Float(), 'g', -1, 64)
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Array, reflect.Slice:
		return appendList(b, v, depth)
	}
	return append(b, "null"...)
}

func appendList(b []byte, v reflect.Value, depth int) []byte {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		bytes := make([]byte, v.Len())
		reflect.Copy(reflect.ValueOf(bytes), v)
		return appendString(b, hex.EncodeToString(bytes))
	}
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendValue(b, v.Index(i), depth+1)
	}
	return append(b, ']')
}

// appendFields adds a struct's fields; first tells that none came before.
func appendFields(b []byte, v reflect.Value, depth int, first bool) ([]byte, bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct && f.IsExported():
			b, first = appendFields(b, v.Field(i), depth+1, first)
			continue
		case !f.IsExported():
			continue
		}
		if !first {
			b = append(b, ',')
		}
		b, first = appendString(b, f.Name), false
		b = append(b, ':')
		b = appendValue(b, v.Field(i), depth+1)
	}
	return b, first
}

func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // a string cannot fail
		return append(b, `""`...)
	}
	return append(b, text...)
}
