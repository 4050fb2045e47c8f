// main.go - the twelve benchmarks with goroutines and channels: arguments, stopwatch, one line of JSON.
//
//	peer NAME [--run K] [--size N]
//	peer NAME.IDIOM [--run K] [--size N]     a program of the second suite: suite.go
//	peer programs                            prints the names of those
//
// A process is a goroutine, its mailbox is a buffered channel. Capacities are so large that a sender hardly ever blocks,
// which is the fast case for Go. GOMAXPROCS is two.
package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"syscall"
	"time"
)

const workers = 2

// A bench does its work between begin and end, and checks its result by expect.
type bench struct {
	name string
	size int64 // default of --size
	run  func(w *watch, size int64)
}

var benches = []bench{
	{"pingpong", 1000000, pingpong},
	{"ring", 2000000, ring},
	{"spawn", 1000000, spawn},
	{"skynet", 1000000, skynet},
	{"counting", 5000000, counting},
	{"fanin", 50000, fanin},
	{"big", 5000, big},
	{"forkjoin", 100, forkjoin},
	{"idle", 1000000, idle},
	{"wake", 5000, wake},
	{"yield", 100, yield},
	{"timers", 100000, timers},
}

// watch is the stopwatch, with the values of the line that will be printed.
type watch struct {
	name       string
	began      time.Time
	beganCPU   time.Duration
	took, cpu  time.Duration
	operations int64
	value      float64
	unit       string
	extra      string
}

func (w *watch) begin() {
	w.beganCPU = cpuTime()
	w.began = time.Now()
}

func (w *watch) end(operations int64) {
	w.took = time.Since(w.began)
	w.cpu = cpuTime() - w.beganCPU
	w.operations = operations
	w.value = float64(w.took.Nanoseconds()) / float64(operations)
	w.unit = "ns/op"
}

func (w *watch) expect(what string, got, want int64) {
	if got != want {
		fail(1, "%s: %s is %d, not %d", w.name, what, got, want)
	}
}

// percentiles adds p50, p99 and max to the line, and returns the median in us. It sorts the samples.
func (w *watch) percentiles(samples []int64) float64 {
	sort.Slice(samples, func(i, j int) bool { return samples[i] < samples[j] })
	last := float64(len(samples) - 1)
	for _, point := range []struct {
		name  string
		share float64
	}{{"p50_us", 0.5}, {"p99_us", 0.99}, {"max_us", 1}} {
		w.extra += fmt.Sprintf(`,"%s":%.3f`, point.name, float64(samples[int(point.share*last)])/1000)
	}
	return float64(samples[len(samples)/2]) / 1000
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// fromStatus reads one number of /proc/self/status, in KiB.
func fromStatus(field string) int64 {
	status, _ := os.ReadFile("/proc/self/status")
	for _, line := range bytes.Split(status, []byte("\n")) {
		words := bytes.Fields(line)
		if len(words) >= 2 && string(words[0]) == field {
			kib, _ := strconv.ParseInt(string(words[1]), 10, 64)
			return kib
		}
	}
	return 0
}

// settle waits until the goroutines that were just started have become idle.
func settle() { time.Sleep(100 * time.Millisecond) }

// random is xorshift64*, the generator of the other benchmarks.
func random(state *uint64) uint64 {
	*state ^= *state >> 12
	*state ^= *state << 25
	*state ^= *state >> 27
	return *state * 2685821657736338717
}

func fail(code int, format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "go: "+format+"\n", arguments...)
	os.Exit(code)
}

func usage() {
	fail(2, "usage: peer NAME [--run K] [--size N]")
}

func main() {
	if len(os.Args) < 2 || len(os.Args)%2 != 0 {
		usage()
	}
	var chosen *bench
	for i := range benches {
		if benches[i].name == os.Args[1] {
			chosen = &benches[i]
		}
	}
	if os.Args[1] == "programs" {
		listPrograms()
		return
	}
	if chosen == nil {
		chosen = findProgram(os.Args[1])
	}
	if chosen == nil {
		fail(2, "there is no benchmark '%s'", os.Args[1])
	}
	run, size := int64(1), chosen.size
	for i := 2; i < len(os.Args); i += 2 {
		number, err := strconv.ParseInt(os.Args[i+1], 10, 64)
		switch {
		case err != nil || number < 1:
			usage()
		case os.Args[i] == "--run":
			run = number
		case os.Args[i] == "--size":
			size = number
		default:
			usage()
		}
	}
	runtime.GOMAXPROCS(workers)
	w := &watch{name: chosen.name}
	chosen.run(w, size)
	fmt.Printf(`{"system":"go","bench":"%s","run":%d,"value":%.3f,"unit":"%s","cpu_ms":%.1f,"rss_mb":%.1f`+
		`,"workers":%d,"size":%d,"operations":%d%s}`+"\n", w.name, run, w.value, w.unit,
		float64(w.cpu.Nanoseconds())/1e6, float64(fromStatus("VmHWM:"))/1024, workers, size, w.operations, w.extra)
}
