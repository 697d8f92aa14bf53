// Join-service decides who has a seat: the API.
package main

import (
	"github.com/incursa/watermill-outbox/examples/event-registration/program"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

func main() { program.Main(service.Join) }
