package acceptance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/incursa/watermill-outbox/examples/event-registration/registration"
	"github.com/incursa/watermill-outbox/internal/testbrowser"
)

// pictures says where the pictures of the README go. Otherwise they go with the test.
const pictures = "OUTBOX_TEST_REGISTRATION_PICTURES"

// signIn opens the page in a window of its own, as somebody.
func signIn(t *testing.T, f *fixture, user string) *testbrowser.Browser {
	t.Helper()
	b := testbrowser.Start(t)
	b.Window(760, 280, false)
	b.Open(f.one().server.URL)
	b.Fill("input[name=token]", token(t, user))
	b.Click("form[action='/sign-in'] button")
	require.Equal(t, user, b.Text(".user"))
	return b
}

func says(f *fixture, text string) string {
	return `document.getElementById("` + f.event + `").innerText.includes("` + text + `")`
}

// Two people look at one seat: it goes in both windows, without a reload.
func TestLong_TwoWindowsSeeTheLastSeatGo(t *testing.T) {
	folder := os.Getenv(pictures)
	if folder == "" {
		folder = t.TempDir()
	}
	f := newFixture(t, "", registration.Config{})
	f.snapshot(t, 1, 3, "open")
	f.join(t, "carol", "dave")
	ada, bob := signIn(t, f, "ada"), signIn(t, f, "bob")
	button := func(action string) string { return "form[action='/events/" + f.event + "/" + action + "'] button" }
	for _, b := range []*testbrowser.Browser{ada, bob} {
		b.Until(says(f, "1 of 3 seats left"))
	}
	bob.Picture(filepath.Join(folder, "last-seat.png"))
	ada.Click(button("join"))
	ada.Until(says(f, "You have a seat."))
	bob.Until(says(f, "0 of 3 seats left")) // he has clicked nothing
	bob.Click(button("join"))
	bob.Until(says(f, "You are number 1 on the waitlist."))
	bob.Picture(filepath.Join(folder, "waitlist.png"))

	olga := signIn(t, f, organizer)
	olga.Click("#" + f.event + " h2 a")
	olga.Until(`document.querySelectorAll("li form").length == 8`)
	olga.Window(760, 540, true)
	olga.Picture(filepath.Join(folder, "organizer.png"))
	olga.Click("form[action='/events/" + f.event + "/kick']:has(input[value=dave]) button")
	olga.Until(`!document.querySelector("input[value=dave]")`)
	bob.Until(says(f, "You have a seat.")) // he has clicked nothing
	ada.Click(button("cancel"))
	ada.Until(says(f, "You are not registered: canceled."))
	for _, b := range []*testbrowser.Browser{ada, bob, olga} {
		b.Quiet()
	}
	f.requireBalanced(t)
}
