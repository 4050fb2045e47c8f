// processes.go - the benchmarks of starting, waking and sleeping processes.
package main

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func spawn(w *watch, size int64) {
	var alive sync.WaitGroup
	settle()
	w.begin()
	alive.Add(1)
	go func() {
		for i := int64(0); i < size; i++ {
			alive.Add(1)
			go alive.Done()
		}
		alive.Done()
	}()
	alive.Wait() // returns only when all goroutines have run, so there is nothing else to check
	w.end(size)
}

// A leaf sends its number to its parent `up`; any other node sends the sum of its ten children.
func tree(up chan<- int64, first, count int64) {
	if count == 1 {
		up <- first
		return
	}
	inbox, sum := make(chan int64, 10), int64(0)
	for i := int64(0); i < 10; i++ {
		go tree(inbox, first+i*(count/10), count/10)
	}
	for i := 0; i < 10; i++ {
		sum += <-inbox
	}
	up <- sum
}

func skynet(w *watch, size int64) {
	up := make(chan int64, 1)
	settle()
	w.begin()
	go tree(up, 0, size)
	sum := <-up
	w.end((size*10 - 1) / 9)
	w.value, w.unit = float64(w.took.Nanoseconds())/1e6, "ms"
	w.expect("the sum", sum, size*(size-1)/2)
}

// Each process has a mailbox of its own and waits for a message.
func idle(w *watch, size int64) {
	var waiting sync.WaitGroup
	inboxes := make([]chan int64, size)
	for i := range inboxes { // touches the array, so that it does not count as memory of the processes
		inboxes[i] = nil
	}
	answered := make(chan int64)
	settle()
	before := residentBytes()
	w.begin()
	waiting.Add(int(size))
	for i := range inboxes {
		inbox := make(chan int64)
		inboxes[i] = inbox
		go func() {
			waiting.Done()
			answered <- <-inbox
		}()
	}
	waiting.Wait()
	w.end(size)
	settle()
	w.value, w.unit = float64(residentBytes()-before)/float64(size), "bytes"
	w.expect("goroutines", int64(runtime.NumGoroutine()), size+1)
	inboxes[size/2] <- 7 // checks that a process receives
	w.expect("the answer", <-answered, 7)
}

func residentBytes() int64 {
	var size, resident int64
	statm, _ := os.ReadFile("/proc/self/statm")
	for i, field := 0, 0; i < len(statm) && field < 2; i++ {
		switch {
		case statm[i] == ' ':
			field++
		case field == 0:
			size = size*10 + int64(statm[i]-'0')
		default:
			resident = resident*10 + int64(statm[i]-'0')
		}
	}
	return resident * int64(os.Getpagesize())
}

func sleepThread(span time.Duration) {
	ask := syscall.NsecToTimespec(span.Nanoseconds())
	for syscall.Nanosleep(&ask, &ask) == syscall.EINTR {
	}
}

// The sending thread is a goroutine locked to its OS thread that sleeps in the kernel, because Go has no foreign threads.
func wake(w *watch, size int64) {
	late := make([]int64, size)
	var seen atomic.Int64
	zero := time.Now()
	inbox := make(chan int64, 1)
	go func() {
		for sent := range inbox {
			now := time.Since(zero).Nanoseconds()
			late[seen.Load()] = now - sent
			seen.Add(1)
		}
	}()
	runtime.LockOSThread()
	sleepThread(100 * time.Millisecond)
	w.begin()
	for i := int64(0); i < size; i++ {
		sleepThread(500 * time.Microsecond)
		inbox <- time.Since(zero).Nanoseconds()
		for seen.Load() == i {
			sleepThread(50 * time.Microsecond)
		}
	}
	w.end(size)
	w.value, w.unit = w.percentiles(late), "us p50"
	w.expect("messages", seen.Load(), size)
}

func yield(w *watch, size int64) {
	const processes = 10000
	var over sync.WaitGroup
	var yields [processes]int64
	goes := make(chan struct{})
	over.Add(processes)
	for i := 0; i < processes; i++ {
		go func(i int) {
			<-goes
			for ; yields[i] < size; yields[i]++ {
				runtime.Gosched()
			}
			over.Done()
		}(i)
	}
	settle()
	w.begin()
	close(goes)
	over.Wait()
	w.end(processes * size)
	total := int64(0)
	for _, n := range yields {
		total += n
	}
	w.expect("yields", total, processes*size)
}

func timers(w *watch, size int64) {
	late := make([]int64, size)
	var over sync.WaitGroup
	zero := time.Now()
	settle()
	w.begin()
	over.Add(int(size))
	for i := int64(0); i < size; i++ {
		go func(i int64) {
			state := uint64(i*7919 + 1)
			random(&state)
			span := time.Duration(random(&state) % uint64(time.Second))
			due := time.Since(zero) + span
			time.Sleep(span)
			late[i] = (time.Since(zero) - due).Nanoseconds()
			over.Done()
		}(i)
	}
	over.Wait()
	w.end(size)
	w.value, w.unit = float64(w.cpu.Nanoseconds())/1e6, "ms cpu"
	w.percentiles(late)
	if late[0] < 0 {
		fail(1, "timers: one came early")
	}
}
