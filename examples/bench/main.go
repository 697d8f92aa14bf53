// Bench measures the outbox against the plain SQL statements that it cannot do without, on the same table, in the same
// process and in the same run.
//
//	go run ./examples/bench                                       on SQLite, in a temporary file
//	go run ./examples/bench -backend postgres -dsn postgres://user:password@host/db
//	go run ./examples/bench -backend sqlserver -dsn "sqlserver://user:password@host?database=db" -figure publish1,drain
//	go run ./examples/bench -figure forward -amqp amqp://user:password@host
//	go run ./examples/bench -figure forward_kafka -kafka localhost:9092
//	go run ./examples/bench -payload 1536
//
// Each figure has the value of the product, that of the bare statements, and their ratio: 1 is as fast as the statements
// alone, and more is faster, whatever the unit. With -json a figure is one line of JSON, with -v the statements and each
// single run are shown on the error output. All that is created in the database has a prefix of its own and is dropped.
//
// figures.go lists what is measured, bare.go has what it is measured against.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == publisherFlag {
		os.Exit(publisherMain(os.Stdin, os.Stdout, os.Stderr)) // started by the figure latency
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// largestPayload is what a Subscriber has out at a time, by default.
const largestPayload = 64 << 20

type options struct {
	backend, dsn, figures, profile string
	amqp, kafka                    string
	json, verbose                  bool
	runs, payload                  int
	scale                          float64
}

// run is main, with what it needs given to it. It returns the exit code.
func run(ctx context.Context, args []string, out, errOut io.Writer) int {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&o.backend, "backend", "sqlite", "the database: "+strings.Join(backendNames(), ", "))
	flags.StringVar(&o.dsn, "dsn", "", "where it is, as its driver reads it; not needed for sqlite, which then has a temporary file")
	flags.StringVar(&o.amqp, "amqp", "", "the `URL` of a RabbitMQ, for the figure "+forward)
	flags.StringVar(&o.kafka, "kafka", "", "Kafka `brokers` for the figure "+forwardKafka+"; defaults to a fake broker in this process")
	flags.StringVar(&o.figures, "figure", "", "measure only these, a list of `names`: "+strings.Join(figureNames(), ", "))
	flags.BoolVar(&o.json, "json", false, "print a line of JSON a figure instead of a table")
	flags.BoolVar(&o.verbose, "v", false, "show the bare statements and each single run")
	flags.IntVar(&o.payload, "payload", 256, "how many `bytes` each message carries, in the product and in the bare statements; 1536 and 16384 are worth a look")
	flags.IntVar(&o.runs, "runs", 3, "how often the bare statements and the product are run, in turn; the median counts")
	flags.Float64Var(&o.scale, "scale", 1, "multiplies durations and numbers of messages, for a slow server or a quick look")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of the product's last run to this `FILE`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	err := o.validate(flags.Args())
	if err != nil {
		fmt.Fprintln(errOut, "bench:", err)
		return 2
	}
	switch err := measure(ctx, o, out, errOut); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(errOut, "bench: stopped")
		return 130
	default:
		fmt.Fprintln(errOut, "bench:", err)
		return 1
	}
}

func (o options) validate(rest []string) error {
	switch backend, err := findBackend(o.backend); {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag; see -h", rest[0])
	case err != nil:
		return fmt.Errorf("-backend: %w", err)
	case o.dsn == "" && !backend.embedded:
		return fmt.Errorf("-backend %s needs -dsn, the address of the database", o.backend)
	case o.runs < 1:
		return fmt.Errorf("-runs: %d is less than 1", o.runs)
	case o.payload < 1 || o.payload > largestPayload:
		return fmt.Errorf("-payload: %d is not between 1 and %d bytes", o.payload, largestPayload)
	case !(o.scale > 0 && o.scale <= 100):
		return fmt.Errorf("-scale: %v is not above 0 and up to 100", o.scale)
	}
	_, err := o.chosen()
	if err != nil {
		return fmt.Errorf("-figure: %w", err)
	}
	return nil
}

// chosen are the figures to measure. Those that need what is not there are left out where none was asked for by name.
func (o options) chosen() ([]figure, error) {
	figures, err := chosenFigures(o.figures)
	if err != nil {
		return nil, err
	}
	var possible []figure
	for _, f := range figures {
		switch missing := f.missing(o); {
		case missing == "":
			possible = append(possible, f)
		case o.figures != "":
			return nil, fmt.Errorf("%s needs %s", f.name, missing)
		}
	}
	return possible, nil
}

// measure measures the chosen figures, one after the other, and prints each as soon as it is known.
func measure(ctx context.Context, o options, out, errOut io.Writer) (err error) {
	figures, err := o.chosen()
	if err != nil {
		return err
	}
	b := &bench{amqp: o.amqp, kafka: o.kafka, payload: newPayload(o.payload), runs: o.runs, scale: o.scale, profile: o.profile, log: io.Discard}
	if o.verbose {
		b.log = errOut
	}
	if b.table, err = createTable(ctx, o.backend, o.dsn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.drop()) }()
	show := printTable(out)
	if o.json {
		show = printJSON(out)
	}
	for _, f := range figures {
		results, err := f.measure(ctx, b)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for _, r := range results {
			r.Backend, r.Figure, r.Payload = o.backend, f.name, o.payload
			if err := show(r); err != nil {
				return err
			}
		}
	}
	return nil
}
