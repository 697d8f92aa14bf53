// Package house tests the shape of the code: how long files and functions are, and what imports what.
package house
