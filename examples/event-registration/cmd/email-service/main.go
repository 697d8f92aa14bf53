// Email-service tells people what has happened to their registrations.
package main

import (
	"github.com/incursa/watermill-outbox/examples/event-registration/program"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

func main() { program.Main(service.Email) }
