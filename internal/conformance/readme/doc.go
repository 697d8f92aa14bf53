// Package readme holds the tests of the project's documents: the README's program builds and runs from the README's text
// alone, every block of Go on the pages compiles, and the files, names, links and targets that they mention exist.
package readme
