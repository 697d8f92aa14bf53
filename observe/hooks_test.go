package observe_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	outbox "github.com/incursa/watermill-outbox"
	"github.com/incursa/watermill-outbox/observe"
)

// Every hook there is calls those that were joined, in order.
func TestJoin(t *testing.T) {
	kind := reflect.TypeFor[outbox.Hooks]()
	require.Positive(t, kind.NumField())
	for i := range kind.NumField() {
		var called []string
		hooks := func(name string) outbox.Hooks {
			var h outbox.Hooks
			reflect.ValueOf(&h).Elem().Field(i).Set(reflect.MakeFunc(kind.Field(i).Type, func([]reflect.Value) []reflect.Value {
				called = append(called, name)
				return nil
			}))
			return h
		}
		joined := reflect.ValueOf(observe.Join(hooks("first"), outbox.Hooks{}, hooks("second"))).Field(i)
		joined.Call([]reflect.Value{reflect.Zero(joined.Type().In(0))})
		require.Equal(t, []string{"first", "second"}, called, kind.Field(i).Name)
	}
	require.Zero(t, observe.Join())
}
