// Package cli is the command line of an outbox: one file a group of commands, on the public API of the library.
package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Streams are what a command reads from and writes to.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer

	// Asks says that somebody sits at In who can be asked; Shows that somebody looks at Err, who wants to see progress.
	Asks, Shows bool

	// Env looks up environment variables. Defaults to none.
	Env func(string) string

	// Now is the local clock, which doctor compares with the database's. Defaults to time.Now.
	Now func() time.Time
}

// Terminal is the process's own.
func Terminal() Streams {
	return Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Getenv,
		Asks: isTerminal(os.Stdin) && isTerminal(os.Stderr), Shows: isTerminal(os.Stderr)}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// app is one run of the command.
type app struct {
	Streams
	render *renderer

	dsn, schema, table, output string
	by                         string
	dryRun, yes                bool
	timeout                    age

	ran     bool   // an error is then not about the command line
	command string // the path of the command that runs
}

// Run runs one command line and returns the exit code of the process.
func Run(ctx context.Context, args []string, streams Streams) int {
	if streams.Env == nil {
		streams.Env = func(string) string { return "" }
	}
	if streams.Now == nil {
		streams.Now = time.Now
	}
	streams.Out = output{streams.Out}
	a := &app{Streams: streams}
	root := a.root() //nolint:contextcheck // cobra hands the context to each command
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	strict(root)
	return a.exit(ctx, root.ExecuteContext(ctx))
}

const about = `outbox looks after a transactional outbox on SQL Server, PostgreSQL or SQLite.

Name the database with --dsn or OUTBOX_DSN:

  postgres://user:password@host/database
  sqlserver://user:password@host?database=name
  sqlite:orders.db

Exit codes:
  0    all is well
  1    trouble was found, or what was asked for is not there
  2    the command line is wrong, or an act was not confirmed
  3    the database cannot be reached, or has answered with an error
  130  interrupted`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "outbox", Short: "Look after a transactional outbox", Long: about,
		Example: `  outbox doctor
  outbox dead errors
  outbox dead requeue --error "no such customer" --dry-run
  outbox message show 0198f0c4-5a0b-7000-8000-000000000000 --payload`,
		SilenceErrors: true, SilenceUsage: true, Version: thisBuild().Version,
		PersistentPreRunE: func(*cobra.Command, []string) (err error) {
			a.render, err = newRenderer(a.Out, a.output)
			return err
		},
	}
	root.SetVersionTemplate("outbox {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "the database; defaults to OUTBOX_DSN")
	flags.StringVar(&a.schema, "schema", "", "the schema of the outbox (default dbo or public)")
	flags.StringVar(&a.table, "table", "", "the table of the outbox (default Outbox or outbox)")
	flags.StringVarP(&a.output, "output", "o", "table", "table, or json: one line each")
	flags.BoolVar(&a.dryRun, "dry-run", false, "say what would be done, and change nothing")
	flags.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	flags.StringVar(&a.by, "by", "", "who does it, for 'outbox audit list'; defaults to OUTBOX_BY, or the login name")
	flags.Var(&a.timeout, "timeout", "how long the command may take (default no limit)")
	root.InitDefaultHelpFlag() // else what follows --help is taken for its value
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%v", err) })
	root.AddGroup(&cobra.Group{ID: "look", Title: "Look:"}, &cobra.Group{ID: "act", Title: "Messages:"}, &cobra.Group{ID: "install", Title: "Install:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("look", a.doctorCommand(), a.checkCommand(), a.topicsCommand(), a.workersCommand(), a.auditCommand(), a.consoleCommand())
	add("act", a.topicCommand(), a.messageCommand(), a.deadCommand(), a.streamCommand(), a.joinCommand(), a.inboxCommand(), a.logCommand(), a.purgeCommand())
	add("install", a.migrateCommand(), a.storesCommand(), a.versionCommand())
	return root
}

// strict has the commands that cobra adds refuse what they do not know. They have its streams by now.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err == nil && len(rest) > 0 {
					err = usage("unknown command %q for %q", rest[0], of.CommandPath())
				}
				return err
			}
		case "completion":
			c.RunE = func(*cobra.Command, []string) error {
				return usage("say for which shell: one of the commands of 'outbox completion --help'")
			}
		}
	}
}

// group is a command that only has others below it.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
		return usage("say what to do: one of the commands of 'outbox %s --help'", c.Name())
	}}
	c.AddCommand(commands...)
	return c
}

// action is a command that works on a database: with says what to do with it.
func (a *app) action(c *cobra.Command, with func(ctx context.Context, db *database, args []string) error) *cobra.Command {
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx := c.Context()
		if a.timeout.duration > 0 {
			limited, cancel := context.WithTimeout(ctx, a.timeout.duration)
			defer cancel()
			ctx = limited
		}
		if a.dryRun && c.Annotations[dryRuns] == "" {
			return usage("%s has no --dry-run", c.CommandPath())
		}
		a.ran, a.command = true, c.CommandPath()
		db, err := a.open(ctx, c.Annotations[creates] != "")
		if err != nil {
			return err
		}
		return errors.Join(with(ctx, db, args), db.Close())
	}
	return c
}

// actor is who does it.
func (a *app) actor() string {
	if by := cmp.Or(a.by, a.Env("OUTBOX_BY"), a.Env("USER"), a.Env("USERNAME")); by != "" {
		return by
	}
	login, err := user.Current()
	if err != nil {
		return "" // a container may have a number that is nobody's
	}
	return login.Username
}

// Annotations of commands.
const (
	dryRuns = "dry-run" // --dry-run may be given
	creates = "creates" // an SQLite file that does not exist is created
)

func arguments(n cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := n(c, args); err != nil {
			return usage("%v; usage: %s", err, c.UseLine())
		}
		return nil
	}
}
