package testbrowser

import (
	"fmt"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// problems are what a page has complained about. Events come from chromedp's goroutine.
type problems struct {
	mu    sync.Mutex
	found []string
}

// watch asks the browser for the events.
var watch = chromedp.Steps(call(network.Enable, network.EnableParams{}), call(runtime.Enable, cdp.Empty{}), call(log.Enable, cdp.Empty{}))

func (p *problems) listen(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded: // what the browser says itself: violations of the policy, answers of 400 and above
		if e.Entry.Level == log.EntryLevelError {
			p.add("%s (%s)", e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			p.add("console: %s", words(e.Args))
		}
	case *runtime.EventExceptionThrown:
		p.add("%s: %s", e.ExceptionDetails.Text, words([]*runtime.RemoteObject{e.ExceptionDetails.Exception}))
	case *network.EventLoadingFailed:
		if !e.Canceled { // a page that is left cancels what it still reads
			p.add("a request failed: %s", e.ErrorText)
		}
	}
}

func (p *problems) add(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = append(p.found, fmt.Sprintf(format, args...))
}

func (p *problems) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.found
	p.found = nil
	return found
}

func words(args []*runtime.RemoteObject) string {
	var text []string
	for _, arg := range args {
		if arg != nil {
			text = append(text, string(arg.Value)+arg.Description) // objects have only the second
		}
	}
	return strings.Join(text, " ")
}
