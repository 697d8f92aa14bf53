// Event-registration registers people for events: seats, waitlists, moderation, over HTTP. README.md shows it.
//
//	go run ./examples/event-registration
//
// It needs nothing installed: SQLite, and a broker in the process. With -dsn, -amqp and -redis it uses yours.
package main

import (
	"github.com/incursa/watermill-outbox/examples/event-registration/program"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

func main() { program.Main(service.Join, service.Event, service.Email) }
