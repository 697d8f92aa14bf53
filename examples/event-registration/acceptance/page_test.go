package acceptance_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
)

// A browser keeps cookies and follows redirects.
type browser struct {
	client *http.Client
	base   string
}

func newBrowser(t *testing.T, f *fixture, user string) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	b := browser{&http.Client{Jar: jar, Transport: f.one().server.Client().Transport}, f.one().server.URL}
	require.Contains(t, b.submit(t, "/sign-in", url.Values{"token": {token(t, user)}}), user)
	return b
}

func (b browser) open(t *testing.T, path string) string {
	t.Helper()
	response, err := b.client.Get(b.base + path)
	return b.read(t, response, err)
}

func (b browser) submit(t *testing.T, path string, form url.Values) string {
	t.Helper()
	response, err := b.client.PostForm(b.base+path, form)
	return b.read(t, response, err)
}

func (b browser) read(t *testing.T, response *http.Response, err error) string {
	t.Helper()
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return string(text)
}

var hiddenKey = regexp.MustCompile(`name="key" value="([^"]+)"`)

// key is that of the forms on a page: a form that is sent twice has one effect.
func key(t *testing.T, page string) url.Values {
	t.Helper()
	found := hiddenKey.FindStringSubmatch(page)
	require.Len(t, found, 2, page)
	return url.Values{"key": {found[1]}}
}

func TestTwoBrowsersSeeTheLastSeatGo(t *testing.T) {
	f := newFixture(t, "", registration.Config{})
	f.snapshot(t, 1, 1, "open")
	ada, bob, olga := newBrowser(t, f, "ada"), newBrowser(t, f, "bob"), newBrowser(t, f, organizer)
	home := ada.open(t, "/")
	require.Contains(t, home, "<strong>1</strong> of 1 seats left")
	join := key(t, home)
	require.Contains(t, ada.submit(t, "/events/"+f.event+"/join", join), "You have a seat.")
	require.Contains(t, ada.submit(t, "/events/"+f.event+"/join", join), "You have a seat.")
	home = bob.open(t, "/")
	require.Contains(t, home, "<strong>0</strong> of 1 seats left")
	require.Contains(t, bob.submit(t, "/events/"+f.event+"/join", key(t, home)), "You are number 1 on the waitlist.")
	require.Contains(t, bob.open(t, "/events/"+f.event), "auth.forbidden")

	people := olga.open(t, "/events/"+f.event)
	form := key(t, people)
	form.Set("user_id", "ada")
	require.NotContains(t, olga.submit(t, "/events/"+f.event+"/ban", form), `value="ada"`)
	require.Contains(t, bob.open(t, "/"), "You have a seat.")
	require.Contains(t, ada.submit(t, "/events/"+f.event+"/join", key(t, ada.open(t, "/"))), "you are banned from this event")
	require.Contains(t, bob.submit(t, "/events/"+f.event+"/cancel", key(t, bob.open(t, "/"))), "You are not registered: canceled.")
	require.NotContains(t, bob.submit(t, "/sign-out", nil), "Sign out")
}

func TestThePageEscapesAndRefusesFormsOfOtherSites(t *testing.T) {
	f := newFixture(t, "", registration.Config{})
	f.snapshot(t, 1, 1, "open")
	ada := newBrowser(t, f, "ada")
	require.Contains(t, ada.open(t, "/?message="+url.QueryEscape("<script>")), "&lt;script&gt;")
	require.Contains(t, ada.submit(t, "/sign-in", url.Values{"token": {"x"}}), "The token is not valid.")
	form := key(t, ada.open(t, "/"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ada.base+"/events/"+f.event+"/join?"+form.Encode(), nil)
	require.NoError(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	response, err := ada.client.Do(r)
	require.Contains(t, ada.read(t, response, err), "page.cross_origin")
	require.Zero(t, f.requireBalanced(t).Active)
}
