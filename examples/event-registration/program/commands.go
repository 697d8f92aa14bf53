package program

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"time"

	"github.com/incursa/watermill-outbox/examples/event-registration/httpapi"
	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/examples/event-registration/service"
)

// do runs a command, if its service is in this program.
func do(ctx context.Context, services *service.Service, command []string) error {
	switch {
	case command[0] == "event" && services.Catalog() != nil:
		return saveEvent(ctx, services, command[1:])
	case command[0] == "show" && services.Catalog() != nil && len(command) == 2:
		event, err := services.Catalog().Get(ctx, command[1])
		if err != nil {
			return err
		}
		text, err := json.Marshal(event)
		fmt.Println(string(text))
		return err
	case command[0] == "reconcile" && services.Registration() != nil:
		return reconcile(ctx, services)
	case command[0] == "redrive":
		redriven, err := services.Redrive(ctx)
		for queue, n := range redriven {
			fmt.Printf("%s: %d redriven\n", queue, n)
		}
		return err
	}
	return fmt.Errorf("%q is not a command here: token USER, redrive; of the event-service event, show ID; of the join-service reconcile", command[0])
}

// tokenLifetime is how long a printed token is valid.
const tokenLifetime = 24 * time.Hour

func printToken(auth httpapi.AuthConfig, user string) error {
	text, err := auth.Token(registration.Actor{UserID: user, Admin: user == "admin"}, tokenLifetime)
	if err == nil {
		fmt.Println(text)
	}
	return err
}

func reconcile(ctx context.Context, services *service.Service) error {
	drifts, err := services.Registration().Reconcile(ctx)
	for _, d := range drifts {
		fmt.Printf("%s: active %d, is %d; waiting %d, is %d\n", d.Before.ID, d.Before.Active, d.After.Active, d.Before.Waiting, d.After.Waiting)
	}
	fmt.Printf("%d events put right\n", len(drifts))
	return err
}

func saveEvent(ctx context.Context, services *service.Service, args []string) error {
	flags := flag.NewFlagSet("event", flag.ContinueOnError)
	var e registration.Snapshot
	flags.StringVar(&e.EventID, "id", "", "of the event")
	flags.StringVar(&e.Title, "title", "", "of the event")
	flags.StringVar(&e.OrganizerID, "organizer", "", "the user who moderates it")
	flags.IntVar(&e.Capacity, "capacity", 0, "seats; 0 is unlimited")
	flags.IntVar(&e.WaitlistLimit, "waitlist", -1, "places on the waitlist; -1 is unlimited")
	flags.StringVar(&e.Status, "status", registration.EventOpen, "open, closed or canceled")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return services.Catalog().Save(ctx, e)
}
