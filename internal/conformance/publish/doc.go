// Package publish tests the flush strategies of the Publisher on each database. It has no code of its own.
package publish
