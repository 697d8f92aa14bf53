// Package testbrowser gives a test a real browser, headless and with a profile of its own.
//
//	OUTBOX_TEST_ONLY       a list: where it does not name chromium, there is none
//	OUTBOX_TEST_REQUIRE    a list: where it names chromium, a test that finds none fails
//
// A test that is left out is listed by package skipped.
package testbrowser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/incursa/watermill-outbox/internal/skipped"
)

// Name is that of the browser in the lists.
const Name = "chromium"

// patience is how long anything may take before the test fails.
const patience = time.Minute

// Browser is one window. Its methods fail the test where they fail, and are for the test's own goroutine.
type Browser struct {
	t        testing.TB
	ctx      context.Context //nolint:containedctx // chromedp keeps the window in it
	problems problems
}

// Start opens a window, and closes the browser when the test ends. Without a browser it does not return.
func Start(t testing.TB) *Browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(find(t)), chromedp.UserDataDir(t.TempDir()))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // the sandbox refuses to run as root
	}
	b := &Browser{t: t}
	process, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(process, chromedp.WithListener(b.problems.listen),
		chromedp.WithErrorf(func(string, ...any) {})) // of events newer than chromedp
	b.ctx = ctx
	t.Cleanup(func() {
		defer stop()
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := chromedp.Cancel(bounded); err != nil { // waits until the process has ended
			t.Errorf("closing the browser: %v", err)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // starts it. With a deadline here, it would end at that
		t.Fatalf("starting %s: %v", Name, err)
	}
	run(b, watch)
	return b
}

// find returns the browser's path. scripts/with-databases installs Debian's.
func find(t testing.TB) string {
	t.Helper()
	if os.Getenv("OUTBOX_TEST_ONLY") != "" && !named("OUTBOX_TEST_ONLY") {
		without(t, "OUTBOX_TEST_ONLY leaves it out")
	}
	if testing.Short() {
		without(t, "-short starts nothing")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	without(t, "it is not installed: Debian's package chromium has it")
	return ""
}

func without(t testing.TB, why string) {
	t.Helper()
	if named("OUTBOX_TEST_REQUIRE") {
		t.Fatalf("OUTBOX_TEST_REQUIRE names %s: %s", Name, why)
	}
	skipped.Add(t.Name(), Name, why)
	t.Skipf("needs %s: %s", Name, why)
}

func named(key string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(key), ","), func(name string) bool { return strings.TrimSpace(name) == Name })
}

// Do does what chromedp offers beyond the methods here.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(steps...))
}

func run[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
	return value
}

// Open goes to an address, and returns the status of the answer once the page has loaded, or 0 if it
// needed none.
func (b *Browser) Open(address string) (status int64) {
	b.t.Helper()
	return b.follow(chromedp.Navigate(address), true)
}

// Click clicks an element that leads to another page, once it is visible, and returns the page's status once it has loaded.
func (b *Browser) Click(selector string) (status int64) {
	b.t.Helper()
	b.Until(first(selector) + "?.checkVisibility()")
	return b.ClickOn(first(selector))
}

// ClickOn does the same with the element that an expression of JavaScript finds.
func (b *Browser) ClickOn(expression string) (status int64) {
	b.t.Helper()
	return b.follow(chromedp.Evaluate[chromedp.Void]("("+expression+").click()"), false)
}

// follow does a step that leads to another page. One that may be done again is, if the page that it leaves loads itself again
// just then, which ends what the browser was about to load.
func (b *Browser) follow(step chromedp.Action[chromedp.Void], again bool) (status int64) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	answer, err := chromedp.RunResponse(ctx, step)
	for err != nil && again && strings.Contains(err.Error(), "net::ERR_ABORTED") {
		answer, err = chromedp.RunResponse(ctx, step)
	}
	if err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
	if answer == nil { // of a page that came over no network
		return 0
	}
	return answer.Status
}

// Fill replaces what is in a field, once it is visible.
func (b *Browser) Fill(selector, value string) {
	b.t.Helper()
	b.Until(first(selector) + "?.checkVisibility()")
	run(b, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("(field => { field.focus(); field.value = %q })(%s)", value, first(selector))))
}

// Text returns what a reader sees of the first element that matches, once there is one.
func (b *Browser) Text(selector string) string {
	b.t.Helper()
	b.Until(first(selector))
	return run(b, chromedp.Evaluate[string](first(selector)+"?.innerText"))
}

// Reads waits until a reader sees a text in the first element that matches: a page that is live shows it later than it is true.
func (b *Browser) Reads(selector, text string) {
	b.t.Helper()
	b.Until(fmt.Sprintf("%s?.innerText.includes(%q)", first(selector), text))
}

// first is an expression of the first element that matches. An element is found and used by one expression: a page that is live
// may replace it at any moment in between.
func first(selector string) string { return fmt.Sprintf("document.querySelector(%q)", selector) }

// Eval returns the value of an expression of JavaScript.
func (b *Browser) Eval(expression string) any {
	b.t.Helper()
	return run(b, chromedp.Evaluate[any](expression))
}

// Until waits until an expression of JavaScript is true. It asks from outside, so that a page's policy against evaluating text
// does not matter, and that the page may be left meanwhile.
func (b *Browser) Until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && value {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			b.t.Fatalf("the browser: %s was not true within %v: %v", expression, patience, err)
		}
	}
}

// Window sets the size of the page in CSS pixels, and whether the reader prefers dark.
func (b *Browser) Window(width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.Do(chromedp.EmulateViewport(width, height), call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// WithoutScripts has the pages that are opened from now on run no scripts. What the test evaluates still runs.
func (b *Browser) WithoutScripts() {
	b.t.Helper()
	b.Do(call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
}

// Quiet fails the test if a page has written an error to the browser's console, or a request has failed.
func (b *Browser) Quiet() {
	b.t.Helper()
	if found := b.Problems(); len(found) > 0 {
		b.t.Errorf("the browser complains:\n%s", strings.Join(found, "\n"))
	}
}

// Problems returns, and forgets, the errors in the browser's console and the requests that failed.
func (b *Browser) Problems() []string { return b.problems.take() }

// call is a command of the browser's protocol as a step.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, command, params)
		return err
	})
}
