//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime is what this process has spent so far, in programs and in the kernel for them. A server's own is not in it.
func cpuTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
