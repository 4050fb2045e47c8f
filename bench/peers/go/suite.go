// suite.go - the second suite: ordinary programs, each in the idioms that Go has for it. The runner names the size.
package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A program does its work between begin and end; variant has the meaning that it has in bench/programs/list.h.
type program struct {
	name, idiom string
	variant     int
	run         func(w *watch, size int64, variant int)
}

var programs = []program{
	{"chameneos", "unbuffered", 0, chameneosChannel},
	{"chameneos", "buffered", 100, chameneosChannel},
	{"chameneos", "mutex", 0, chameneosMutex},
	{"philosophers", "mutex", 0, philosophersMutex},
	{"philosophers", "channel", 0, philosophersChannel},
	{"bank", "mutex", 0, bankMutex},
	{"bank", "channel", 64, bankChannel},
	{"dictionary", "mutex", 0, dictionaryMutex},
	{"dictionary", "channel", 64, dictionaryChannel},
	{"sieve", "unbuffered", 0, sieve},
	{"sieve", "buffered", 64, sieve},
	{"logistic", "unbuffered", 0, logistic},
	{"logistic", "buffered", 1, logistic},
	{"pubsub", "buffered16", 16, pubsub},
	{"pubsub", "buffered1k", 1024, pubsub},
	{"request24", "unbuffered", 24, requestUnbuffered},
	{"request24", "buffered", 24, requestBuffered},
	{"request64", "unbuffered", 64, requestUnbuffered},
	{"request64", "buffered", 64, requestBuffered},
	{"request1k", "unbuffered", 1024, requestUnbuffered},
	{"request1k", "buffered", 1024, requestBuffered},
	{"request64k", "unbuffered", 65536, requestUnbuffered},
	{"request64k", "buffered", 65536, requestBuffered},
	{"pipeline", "unbuffered", 0, pipeline},
	{"pipeline", "buffered", 16, pipeline},
	{"pipeline_yield", "buffered", 16, pipeline},
	{"crowd1k", "unbuffered", 1000, crowdUnbuffered},
	{"crowd1k", "buffered", 1000, crowdBuffered},
	{"crowd10k", "unbuffered", 10000, crowdUnbuffered},
	{"crowd10k", "buffered", 10000, crowdBuffered},
	{"crowd100k", "unbuffered", 100000, crowdUnbuffered},
	{"crowd100k", "buffered", 100000, crowdBuffered},
	{"backlog", "channel", 0, backlogChannel},
	{"backlog", "slice", 0, backlogSlice},
	{"skewed", "goroutine", 1, tasksSpawned},
	{"skewed", "pool", 1, tasksPooled},
	{"tasks", "goroutine", 0, tasksSpawned},
	{"tasks", "pool", 0, tasksPooled},
	{"outside_spawn", "goroutine", 0, outsideSpawn},
	{"outside_send", "unbuffered", 0, outsideSend},
	{"outside_send", "buffered", 1024, outsideSend},
	{"timers_at", "sleep", 50000, timersSleep},
	{"timers_at", "timer", 50000, timersReset},
	{"timers_over", "sleep", 400000, timersSleep},
	{"timers_over", "timer", 400000, timersReset},
	{"probe_out_churn", "channel", 0, probeOutside},
	{"probe_out_50", "channel", 50, probeOutside},
	{"probe_out_80", "channel", 80, probeOutside},
	{"probe_in_churn", "unbuffered", 0, probeInside},
	{"probe_in_churn", "buffered", 1, probeInside},
	{"probe_in_50", "unbuffered", 50, probeInside},
	{"probe_in_80", "unbuffered", 80, probeInside},
	{"memory_queued", "channel", 0, memoryQueued},
	{"memory_kept", "channel", 0, memoryKept},
	{"groups_many", "mutex", 0, groupsMany},
	{"groups_one", "mutex", 0, groupsOne},
	{"names", "mutex", 0, namesMutex},
	{"names", "syncmap", 0, namesSyncMap},
	{"echo100", "net", 100, echo},
	{"echo10k", "net", 10000, echo},
	{"accepts", "net", 256, accepts},
}

func listPrograms() {
	for _, p := range programs {
		fmt.Println(p.name + "." + p.idiom)
	}
}

func findProgram(entry string) *bench {
	name, idiom, _ := strings.Cut(entry, ".")
	for _, p := range programs {
		if p.name == name && p.idiom == idiom {
			return &bench{name, 0, func(w *watch, size int64) {
				if size == 0 {
					usage()
				}
				p.run(w, size, p.variant)
			}}
		}
	}
	return nil
}

func (w *watch) set(value float64, unit string) {
	w.value, w.unit = value, unit
}

func (w *watch) add(name string, value float64) {
	w.extra += fmt.Sprintf(`,"%s":%.3f`, name, value)
}

// spin computes for a while.
func spin(span time.Duration) {
	for began := time.Now(); time.Since(began) < span; {
	}
}

// group runs count goroutines and adds up their results.
func group(count int, function func(index int) int64) int64 {
	var wait sync.WaitGroup
	results := make([]int64, count)
	for i := 0; i < count; i++ {
		i := i
		wait.Add(1)
		go func() {
			defer wait.Done()
			results[i] = function(i)
		}()
	}
	wait.Wait()
	var sum int64
	for _, result := range results {
		sum += result
	}
	return sum
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
