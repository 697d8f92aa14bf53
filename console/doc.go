// Package console is a web console for outboxes: an http.Handler for any mux.
//
//	web, err := console.New(console.Config{
//		Provider:  provider,
//		Authorize: func(r *http.Request, a console.Action) error { return mayOperate(r, a) },
//		Prefix:    "/outbox",
//	}, logger)
//	mux.Handle("/outbox/", web)
//
// It shows the stores of a provider, their topics, messages, dead letters, joins, streams, consumer groups, inbox and workers,
// and changes them where Config.AllowChanges and Config.Authorize let it. Pages are made on the server and need no JavaScript
// except for what moves.
//
// # Safety
//
// Nobody gets in without Authorize. Nothing is changed by a GET, and a POST from another site is refused. Payloads and headers
// are shown only as far as Config.Redact says. A strict Content-Security-Policy lets nothing run but the console's own script.
//
// # Cost
//
// Each store is looked at every Config.SampleInterval, by four short calls, whoever is watching. What may take long, such as a
// search or a count, goes on in the background while the page shows how far it has come, and ends when nobody asks for it any
// more.
package console
