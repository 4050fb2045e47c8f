// suite_flow.go - the programs about queues, tasks, and threads that Go does not schedule.
package main

import (
	"runtime"
	"sync"
	"time"
)

// ---- pipeline ----

func pipeline(w *watch, size int64, capacity int) {
	const stages = 3
	settle()
	w.begin()
	first := make(chan int64, capacity)
	in := first
	for n := int64(0); n < int64(stages); n++ {
		next := make(chan int64, capacity)
		from := in
		go func() {
			for item := range from {
				next <- item
			}
			close(next)
		}()
		in = next
	}
	go func() {
		for item := size; item >= 0; item-- {
			first <- item
		}
		close(first)
	}()
	sum := int64(0)
	for item := range in {
		sum += item
	}
	w.end((stages + 1) * size)
	w.expect("sum", sum, size*(size+1)/2)
}

// ---- crowd ----

func crowd(w *watch, size int64, senders, capacity int) {
	each := int64(max(int(size)/senders, 1))
	inbox, start := make(chan int64, capacity), make(chan struct{})
	for n := int64(0); n < int64(senders); n++ {
		go func() {
			<-start
			for left := each; left > 0; left-- {
				inbox <- left
			}
		}()
	}
	settle()
	w.begin()
	close(start)
	sum := int64(0)
	for n := int64(0); n < each*int64(senders); n++ {
		sum += <-inbox
	}
	w.end(each * int64(senders))
	w.expect("sum", sum, int64(senders)*each*(each+1)/2)
}

func crowdUnbuffered(w *watch, size int64, senders int) { crowd(w, size, senders, 0) }
func crowdBuffered(w *watch, size int64, senders int)   { crowd(w, size, senders, 64) }

// ---- backlog ----

const readers = 64

func resident() int64 { return fromStatus("VmRSS:") }

func backlogChannel(w *watch, size int64, _ int) {
	each := size/readers + 1
	total := each * readers
	var inboxes [readers]chan int64
	settle()
	before := resident()
	w.begin()
	for i := range inboxes {
		inboxes[i] = make(chan int64, each)
	}
	for i := int64(0); i < total; i++ {
		inboxes[i%readers] <- i
	}
	queued := resident()
	sum := group(readers, func(index int) int64 {
		sum := int64(0)
		for n := int64(0); n < each; n++ {
			sum += <-inboxes[index]
		}
		return sum
	})
	w.end(total)
	w.add("backlog_mb", float64(queued-before)/1024)
	w.expect("sum", sum, total*(total-1)/2)
}

// backlogSlice has no limit: a queue is a slice that grows, under a mutex.
func backlogSlice(w *watch, size int64, _ int) {
	type queue struct {
		sync.Mutex
		numbers []int64
	}
	each := size/readers + 1
	total := each * readers
	var queues [readers]queue
	settle()
	before := resident()
	w.begin()
	for i := int64(0); i < total; i++ {
		q := &queues[i%readers]
		q.Lock()
		q.numbers = append(q.numbers, i)
		q.Unlock()
	}
	queued := resident()
	sum := group(readers, func(index int) int64 {
		q, sum := &queues[index], int64(0)
		for n := int64(0); n < each; n++ {
			q.Lock()
			sum += q.numbers[0]
			q.numbers = q.numbers[1:]
			q.Unlock()
		}
		return sum
	})
	w.end(total)
	w.add("backlog_mb", float64(queued-before)/1024)
	w.expect("sum", sum, total*(total-1)/2)
}

// ---- tasks ----

func taskSpan(index int64, skewed int) time.Duration {
	switch {
	case skewed == 0:
		return time.Microsecond
	case index%100 == 0:
		return 50 * time.Microsecond
	}
	return 500 * time.Nanosecond
}

func tasksSpawned(w *watch, size int64, skewed int) {
	var wait sync.WaitGroup
	settle()
	w.begin()
	for i := int64(0); i < size; i++ {
		i := i
		wait.Add(1)
		go func() {
			spin(taskSpan(i, skewed))
			wait.Done()
		}()
	}
	wait.Wait()
	w.end(size)
}

func tasksPooled(w *watch, size int64, skewed int) {
	queue := make(chan int64, 256)
	settle()
	w.begin()
	go func() {
		for i := int64(0); i < size; i++ {
			queue <- i
		}
		close(queue)
	}()
	done := group(workers, func(int) int64 {
		done := int64(0)
		for i := range queue {
			spin(taskSpan(i, skewed))
			done++
		}
		return done
	})
	w.end(size)
	w.expect("tasks", done, size)
}

// ---- threads outside: goroutines that are tied to a thread of their own ----

const threads = 4

func outside(function func()) {
	group(threads, func(int) int64 {
		runtime.LockOSThread()
		function()
		return 0
	})
}

func outsideSpawn(w *watch, size int64, _ int) {
	each := size / threads
	var wait sync.WaitGroup
	wait.Add(int(each * threads))
	settle()
	w.begin()
	outside(func() {
		for n := int64(0); n < each; n++ {
			go wait.Done()
		}
	})
	wait.Wait()
	w.end(each * threads)
}

func outsideSend(w *watch, size int64, capacity int) {
	const receivers = 64
	each := int64(max(int(size)/threads, 2*receivers))
	receiverOf := func(message int64) int64 {
		if message%2 == 0 {
			return 0
		}
		return message / 2 % receivers
	}
	var inboxes [receivers]chan int64
	var counts [receivers]int64
	for i := range inboxes {
		inboxes[i] = make(chan int64, capacity)
	}
	for i := int64(0); i < each; i++ {
		counts[receiverOf(i)] += threads
	}
	settle()
	w.begin()
	go outside(func() {
		for i := int64(0); i < each; i++ {
			inboxes[receiverOf(i)] <- i
		}
	})
	sum := group(receivers, func(index int) int64 {
		sum := int64(0)
		for n := int64(0); n < counts[index]; n++ {
			sum += <-inboxes[index]
		}
		return sum
	})
	w.end(threads * each)
	w.expect("sum", sum, threads*(each*(each-1)/2))
}
