package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// residentBytes returns the current resident memory of this process.
func residentBytes() (uint64, error) {
	return kibibytes("/proc/self/smaps_rollup", "Rss:")
}

// peakResidentBytes returns the peak of resident memory since the start of this process.
func peakResidentBytes() (uint64, error) {
	return kibibytes("/proc/self/status", "VmHWM:")
}

func kibibytes(path, field string) (uint64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) == 3 && words[0] == field && words[2] == "kB" {
			number, err := strconv.ParseUint(words[1], 10, 64)
			return number * 1024, err
		}
	}
	return 0, fmt.Errorf("%s has no field %s", path, field)
}

// growth returns the bytes by which memory has grown.
func growth(before, after uint64) float64 {
	if after < before {
		return 0
	}
	return float64(after - before)
}
