package testbroker

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// A Proxy stands between clients and a broker, and can cut their connections.
type Proxy struct {
	URL string

	target   string
	listener net.Listener
	copying  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	fuse  int // bytes until a cut, if there is to be one
	cuts  int
	held  chan struct{} // while it is not nil and open, nothing of the broker's arrives
}

// NewProxy returns a proxy before the broker at a URL. It ends with the test.
func NewProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: Address(t, address), listener: listener, conns: map[net.Conn]struct{}{}}
	u.Host = listener.Addr().String()
	p.URL = u.String()
	p.copying.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Release()
		p.Cut()
		p.copying.Wait()
	})
	return p
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[broker] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.copying.Go(func() { p.copy(broker, client, false) })
		p.copying.Go(func() { p.copy(client, broker, true) })
	}
}

func (p *Proxy) copy(to, from net.Conn, answers bool) {
	defer p.forget(to, from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if answers {
			p.wait()
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
			if !answers {
				p.burn(n)
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) wait() {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
}

// Hold keeps what the broker answers from now on, until Release or, with the connection, Cut.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held == nil {
		p.held = make(chan struct{})
	}
}

// Release lets it through.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
}

// Clients is how many are connected.
func (p *Proxy) Clients() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// CutAfter cuts all connections when so many more bytes have reached the broker.
func (p *Proxy) CutAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fuse = bytes
}

// Cuts is how often CutAfter has done so.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

func (p *Proxy) burn(bytes int) {
	p.mu.Lock()
	burnt := p.fuse > 0 && p.fuse <= bytes
	p.fuse = max(0, p.fuse-bytes)
	if burnt {
		p.cuts++
	}
	p.mu.Unlock()
	if burnt {
		p.Cut()
	}
}

// Cut ends all connections, and answers how many clients lost theirs.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for conn := range p.conns {
		_ = conn.Close()
	}
	p.conns = map[net.Conn]struct{}{}
	return n / 2
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(p.conns, conn)
	}
}
