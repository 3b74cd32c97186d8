// Workflows on servers, for the workload `workflow` of bench/src/workloads, in the same order of steps and with the same
// checks: Temporal's development server and Restate.
//
//	peer temporal-local | temporal-activities | restate workflow --count N --workers W --set KEY=VALUE…
//
// This program drives the runs and carries out their steps. The server is a process that it starts for the run, with data
// of its own, and reaches by the loopback interface.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	line, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(line)
}

func run(arguments []string) (string, error) {
	given, err := parse(arguments)
	if err != nil {
		return "", err
	}
	runtime.GOMAXPROCS(int(given.numbers["--workers"]))
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	programs := filepath.Dir(program)
	parent := given.dir
	if parent == "" {
		parent = programs
	}
	directory, err := os.MkdirTemp(parent, "bench-workflows-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(directory)
	ports, err := freePorts(4)
	if err != nil {
		return "", err
	}
	result, err := measure(&home{row: given.row, programs: programs, directory: directory, ports: ports}, given.numbers)
	if err != nil {
		return "", err
	}
	line, err := json.Marshal(result)
	return string(line), err
}

// settings are the arguments of the run.
type settings struct {
	row, dir string
	// numbers has the workload's settings, and the values of options, whose names begin with two hyphens.
	numbers map[string]uint64
}

func parse(arguments []string) (settings, error) {
	given := settings{numbers: map[string]uint64{}}
	if len(arguments) < 2 || len(arguments)%2 != 0 || arguments[1] != "workflow" {
		return given, fmt.Errorf("usage: peer ROW workflow --count N --workers W --set KEY=VALUE…")
	}
	given.row = arguments[0]
	for rest := arguments[2:]; len(rest) > 0; rest = rest[2:] {
		key, value := rest[0], rest[1]
		if key == "--set" {
			key, value, _ = strings.Cut(value, "=")
		}
		if key == "dir" {
			given.dir = value
			continue
		}
		number, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return given, fmt.Errorf("the setting %s: %w", key, err)
		}
		given.numbers[key] = number
	}
	return given, nil
}

// outcome is the line of JSON that bench/steps/src/outcome.rs describes.
type outcome struct {
	Version   string             `json:"version"`
	Workers   int                `json:"workers"`
	Metrics   map[string]float   `json:"metrics"`
	Failures  []string           `json:"failures"`
	Quantiles map[string][]float `json:"quantiles"`
}

// float is a number that is printed with a point, also if it is whole.
type float float64

func (number float) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(number), 'f', 6, 64), nil
}

// check records a failure unless the found number is the expected one.
func (result *outcome) check(what string, found, expected uint64) {
	if found != expected {
		result.Failures = append(result.Failures, fmt.Sprintf("%s: %d instead of %d", what, found, expected))
	}
}

// latencies adds percentiles, and the quantiles that each run reports.
func (result *outcome) latencies(times []time.Duration) {
	if len(times) == 0 {
		times = []time.Duration{0}
	}
	slices.Sort(times)
	at := func(probability float64) float {
		place := int(math.Ceil(probability*float64(len(times)))) - 1
		return float(times[max(place, 0)].Nanoseconds())
	}
	for _, probability := range []float64{0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1} {
		result.Quantiles["latency"] = append(result.Quantiles["latency"], at(probability))
	}
}
