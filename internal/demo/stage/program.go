package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main is the main of a program: run has what it needs given to it, so that a test can run it too, and returns the exit code.
func Main(run func(ctx context.Context, args []string, out, errOut io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run reads the flags of a program, which has no other arguments, and then runs it. It returns the exit code: 2 for what is
// no flag, 130 for an interrupt, 1 for any other error.
func Run(ctx context.Context, flags *flag.FlagSet, args []string, errOut io.Writer, story func() error) int {
	flags.SetOutput(errOut)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(errOut, "%s: %q is no flag; see -h\n", flags.Name(), flags.Arg(0))
		return 2
	}
	switch err := story(); {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintf(errOut, "%s: stopped: %v\n", flags.Name(), err)
		return 130
	default:
		fmt.Fprintf(errOut, "%s: %v\n", flags.Name(), err)
		return 1
	}
}
