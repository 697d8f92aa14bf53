// Package observe joins hooks, so that metrics, traces and functions of your own see the same events. The packages below it
// make something of them.
package observe

import outbox "github.com/incursa/watermill-outbox"

// Join returns hooks that call those of all, in order.
func Join(all ...outbox.Hooks) (joined outbox.Hooks) {
	for _, h := range all {
		joined.OnPublish = both(joined.OnPublish, h.OnPublish)
		joined.OnClaim = both(joined.OnClaim, h.OnClaim)
		joined.OnSettle = both(joined.OnSettle, h.OnSettle)
		joined.OnHandled = both(joined.OnHandled, h.OnHandled)
		joined.OnHandlerTimeout = both(joined.OnHandlerTimeout, h.OnHandlerTimeout)
		joined.OnReap = both(joined.OnReap, h.OnReap)
		joined.OnGroupRead = both(joined.OnGroupRead, h.OnGroupRead)
		joined.OnGroupSettle = both(joined.OnGroupSettle, h.OnGroupSettle)
		joined.OnLogWentBack = both(joined.OnLogWentBack, h.OnLogWentBack)
		joined.OnJoinEnd = both(joined.OnJoinEnd, h.OnJoinEnd)
		joined.OnBacklog = both(joined.OnBacklog, h.OnBacklog)
	}
	return joined
}

func both[E any](first, second func(E)) func(E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(e E) {
		first(e)
		second(e)
	}
}
