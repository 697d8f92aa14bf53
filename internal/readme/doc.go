// Package readme holds the tests of what the project says about itself: the README's program builds and runs from the
// README's text alone, its example is one that runs, and what it names is there.
package readme
