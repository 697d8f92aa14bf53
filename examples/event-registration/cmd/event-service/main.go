// Event-service has the events, and counts who takes part.
package main

import (
	"github.com/incursa/watermill-outbox/examples/event-registration/program"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

func main() { program.Main(service.Event) }
