// Package flow decides when work is done, and how much: pauses that double, a pacer that wake-ups hurry, a window on what is
// out, and what a process knows about its leases. It needs no database.
package flow
