// suite_time.go - the programs about lateness, memory, names and sockets.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ---- timers ----

const period = 100 * time.Millisecond

func timersBusy(w *watch, size int64, sleepers int, sleeper func() func(time.Duration)) {
	const sampled = 16
	lateness := make([][]int64, sleepers/sampled+1)
	var end time.Time
	start := make(chan struct{}) // sleepers that run would keep this goroutine from starting the others
	w.begin()
	wakes := group(sleepers, func(index int) int64 {
		if index == sleepers-1 {
			end = time.Now().Add(time.Duration(size) * time.Millisecond)
			close(start)
		}
		<-start
		state := uint64(7919*index + 1)
		sleep, span, wakes := sleeper(), time.Duration(random(&state)%uint64(period)), int64(0)
		now := time.Now()
		for {
			due := now.Add(span)
			sleep(span)
			now = time.Now()
			wakes++
			if index%sampled == 0 {
				lateness[index/sampled] = append(lateness[index/sampled], int64(now.Sub(due)))
			}
			if !now.Before(end) {
				return wakes
			}
			span = period
		}
	})
	w.end(wakes)
	var samples []int64
	for _, some := range lateness {
		samples = append(samples, some...)
	}
	w.percentiles(samples)
	w.set(float64(samples[(len(samples)-1)*99/100])/1000, "us p99")
	w.add("wakes_per_s", float64(wakes)/w.took.Seconds())
}

func timersSleep(w *watch, size int64, sleepers int) {
	timersBusy(w, size, sleepers, func() func(time.Duration) { return time.Sleep })
}

func timersReset(w *watch, size int64, sleepers int) {
	timersBusy(w, size, sleepers, func() func(time.Duration) {
		var timer *time.Timer
		return func(span time.Duration) {
			if timer == nil {
				timer = time.NewTimer(span)
			} else {
				timer.Reset(span)
			}
			<-timer.C
		}
	})
}

// ---- probes ----

const (
	gap       = time.Millisecond
	chains    = 200
	working   = 100
	churnSpan = 5 * time.Microsecond
	workSpan  = 20 * time.Microsecond
)

var over atomic.Bool

func churn() {
	spin(churnSpan)
	if !over.Load() {
		go churn()
	}
}

// load keeps the processors busy: all the time with churn if percent is 0, otherwise for percent of the time.
func load(percent int) {
	if percent == 0 {
		for n := int64(0); n < int64(chains); n++ {
			go churn()
		}
		return
	}
	span := working * workSpan * 100 / time.Duration(percent*workers)
	began := time.Now()
	for i := 0; i < working; i++ {
		i := i
		go func() {
			due := began.Add(time.Duration(i) * span / working)
			for !over.Load() {
				time.Sleep(time.Until(due))
				spin(workSpan)
				due = due.Add(span)
			}
		}()
	}
}

func (w *watch) delays(samples []int64) {
	over.Store(true)
	w.percentiles(samples)
	w.set(float64(samples[(len(samples)-1)*99/100])/1000, "us p99")
}

func probeOutside(w *watch, size int64, percent int) {
	target, done := make(chan time.Time, 1024), make(chan []int64)
	go func() {
		samples := make([]int64, 0, size)
		for n := int64(0); n < size; n++ {
			sent := <-target
			samples = append(samples, int64(time.Since(sent)))
		}
		done <- samples
	}()
	load(percent)
	time.Sleep(20 * time.Millisecond)
	w.begin()
	go func() {
		runtime.LockOSThread()
		due := time.Now()
		for n := int64(0); n < size; n++ {
			if span := time.Until(due); span > 0 {
				nap := syscall.NsecToTimespec(int64(span))
				syscall.Nanosleep(&nap, nil)
			}
			target <- time.Now()
			due = due.Add(gap)
		}
	}()
	samples := <-done
	w.end(size)
	w.delays(samples)
}

func probeInside(w *watch, size int64, percent int) {
	capacity := 0
	if percent == 1 {
		capacity, percent = 1, 0
	}
	ask, answer := make(chan int, capacity), make(chan int, capacity)
	go func() {
		for number := range ask {
			answer <- number
		}
	}()
	load(percent)
	time.Sleep(20 * time.Millisecond)
	w.begin()
	samples, wakes, done := make([]int64, 0, size), make([]int64, 0, size), make(chan bool)
	go func() {
		due := time.Now().Add(gap)
		for i := 0; i < int(size); i++ {
			time.Sleep(time.Until(due))
			wakes = append(wakes, int64(time.Since(due)))
			ask <- i
			<-answer
			samples = append(samples, int64(time.Since(due)))
			due = due.Add(gap)
		}
		done <- true
	}()
	<-done
	w.end(size)
	w.delays(samples)
	own := &watch{}
	own.percentiles(wakes)
	w.add("wake_p50_us", float64(wakes[(len(wakes)-1)/2])/1000)
	w.add("wake_p99_us", float64(wakes[(len(wakes)-1)*99/100])/1000)
}

// ---- memory ----

// grow starts size goroutines; each has one unread message. It returns the resident size before, the growth, and a
// function that ends the goroutines.
func grow(w *watch, size int64) (before, grown int64, shrink func() int64) {
	var wait sync.WaitGroup
	var sum atomic.Int64
	inboxes := make([]chan int64, size)
	start := make(chan struct{})
	for i := range inboxes {
		inboxes[i] = nil
	}
	settle()
	before = resident()
	w.begin()
	for i := range inboxes {
		inbox := make(chan int64, 1)
		inboxes[i] = inbox
		wait.Add(1)
		go func() {
			<-start
			sum.Add(<-inbox)
			wait.Done()
		}()
	}
	for i, inbox := range inboxes {
		inbox <- int64(i)
	}
	settle()
	w.end(size)
	return before, resident() - before, func() int64 {
		close(start)
		wait.Wait()
		inboxes = nil
		return sum.Load()
	}
}

func memoryQueued(w *watch, size int64, _ int) {
	_, grown, shrink := grow(w, size)
	w.set(float64(grown)*1024/float64(size), "bytes")
	w.expect("sum", shrink(), size*(size-1)/2)
}

func memoryKept(w *watch, size int64, _ int) {
	before, grown, shrink := grow(w, size)
	w.expect("sum", shrink(), size*(size-1)/2)
	time.Sleep(time.Second)
	w.set(100*float64(max(int(resident()-before), 0))/float64(grown), "% kept")
	w.add("grown_mb", float64(grown)/1024)
}

// ---- groups and names: maps under a lock ----

type registry struct {
	sync.RWMutex
	groups map[string]map[int64]bool
}

func (r *registry) join(group string, member int64) {
	r.Lock()
	defer r.Unlock()
	if r.groups[group] == nil {
		r.groups[group] = map[int64]bool{}
	}
	r.groups[group][member] = true
}

func (r *registry) leave(group string, member int64) {
	r.Lock()
	defer r.Unlock()
	delete(r.groups[group], member)
	if len(r.groups[group]) == 0 {
		delete(r.groups, group)
	}
}

func churnGroups(w *watch, size int64, nameOf func(i int64) string, memberOf func(i int64) int64, want int) {
	r := &registry{groups: map[string]map[int64]bool{}}
	w.begin()
	for i := int64(0); i < size; i++ {
		r.join(nameOf(i), memberOf(i))
	}
	w.expect("members", int64(len(r.groups[nameOf(size-1)])), int64(want))
	for i := int64(0); i < size; i++ {
		r.leave(nameOf(i), memberOf(i))
	}
	w.end(size)
	w.expect("groups", int64(len(r.groups)), 0)
}

func groupsMany(w *watch, size int64, _ int) {
	churnGroups(w, size, func(i int64) string { return fmt.Sprintf("group %d", i) },
		func(int64) int64 { return 0 }, 1)
}

func groupsOne(w *watch, size int64, _ int) {
	churnGroups(w, size, func(int64) string { return "group" }, func(i int64) int64 { return i }, int(size))
}

func churnNames(w *watch, size int64, register func(string, int), find func(string) int, unregister func(string)) {
	const registrars, kept = 8, 1000
	each := size / registrars
	w.begin()
	found := group(registrars, func(index int) int64 {
		found := int64(0)
		for i := int64(0); i < each; i++ {
			name := fmt.Sprintf("name %d.%d", index, i)
			register(name, index)
			if find(name) == index {
				found++
			}
			if i >= kept {
				unregister(fmt.Sprintf("name %d.%d", index, i-kept))
			}
		}
		return found
	})
	w.end(each * registrars)
	w.expect("found", found, each*registrars)
}

func namesMutex(w *watch, size int64, _ int) {
	var lock sync.RWMutex
	names := map[string]int{}
	churnNames(w, size, func(name string, index int) {
		lock.Lock()
		names[name] = index
		lock.Unlock()
	}, func(name string) int {
		lock.RLock()
		defer lock.RUnlock()
		return names[name]
	}, func(name string) {
		lock.Lock()
		delete(names, name)
		lock.Unlock()
	})
}

func namesSyncMap(w *watch, size int64, _ int) {
	var names sync.Map
	churnNames(w, size, func(name string, index int) { names.Store(name, index) }, func(name string) int {
		index, _ := names.Load(name)
		return index.(int)
	}, func(name string) { names.Delete(name) })
}

// ---- sockets ----

const length = 64

func must(err error) {
	if err != nil {
		fail(1, "%v", err)
	}
}

// listen starts a server that sends back what it reads, one goroutine per connection.
func listen() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		for {
			connection, err := listener.Accept()
			must(err)
			go func() {
				defer connection.Close()
				buffer := make([]byte, 4096)
				for {
					count, err := connection.Read(buffer)
					if err != nil {
						return
					}
					if _, err = connection.Write(buffer[:count]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// ask does count round trips on one connection.
func ask(connection net.Conn, count int64) int64 {
	request, reply := make([]byte, length), make([]byte, length)
	for round := int64(0); round < count; round++ {
		for i := range request {
			request[i] = byte(round)
		}
		_, err := connection.Write(request)
		must(err)
		_, err = io.ReadFull(connection, reply)
		must(err)
		if !bytes.Equal(request, reply) {
			fail(1, "echo: the reply is not the request")
		}
	}
	return count
}

func echo(w *watch, size int64, count int) {
	var files syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	files.Cur = files.Max
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files))
	count = min(min(count, int(size)), int(files.Max-64)/2)
	address, connections := listen(), make([]net.Conn, count)
	for i := range connections {
		var err error
		connections[i], err = net.Dial("tcp", address)
		must(err)
	}
	each := size / int64(count)
	settle()
	w.begin()
	rounds := group(count, func(index int) int64 {
		rounds := ask(connections[index], each)
		connections[index].Close()
		return rounds
	})
	w.end(int64(count) * each)
	w.add("connections", float64(count))
	w.expect("round trips", rounds, int64(count)*each)
}

func accepts(w *watch, size int64, count int) {
	address, each := listen(), size/int64(count)+1
	settle()
	w.begin()
	rounds := group(count, func(int) int64 {
		rounds := int64(0)
		for n := int64(0); n < each; n++ {
			connection, err := net.Dial("tcp", address)
			must(err)
			rounds += ask(connection, 1)
			connection.Close()
		}
		return rounds
	})
	w.end(int64(count) * each)
	w.expect("round trips", rounds, int64(count)*each)
}
