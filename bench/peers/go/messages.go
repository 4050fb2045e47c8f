// messages.go - the benchmarks of messages.
package main

import "sync"

func pingpong(w *watch, size int64) {
	there, back := make(chan int64, 1), make(chan int64, 1)
	answered, over := int64(0), make(chan struct{})
	go func() {
		for left := range there {
			answered++
			back <- left
		}
		close(over)
	}()
	settle()
	w.begin()
	go func() {
		for left := size; left > 0; left = <-back - 1 {
			there <- left
		}
		close(there)
	}()
	<-over
	w.end(2 * size)
	w.expect("round trips", answered, size)
}

func ring(w *watch, size int64) {
	const processes = 1000
	rounds, over := int64(0), make(chan struct{})
	first := make(chan int64, 1)
	next := first
	for i := 0; i < processes; i++ {
		inbox := make(chan int64, 1)
		if i == processes-1 {
			inbox = first
		}
		go func(inbox, next chan int64) {
			for left := range inbox {
				if left%processes == 0 {
					rounds++ // true at one member only, because the ring has `processes` members
				}
				if left == 0 {
					close(over)
					return
				}
				next <- left - 1
			}
		}(inbox, next)
		next = inbox
	}
	settle()
	w.begin()
	first <- size
	<-over
	w.end(size)
	w.expect("rounds", rounds, size/processes+1)
}

func counting(w *watch, size int64) {
	inbox, sums := make(chan int64, 1024), make(chan int64)
	go func() {
		seen, sum := int64(0), int64(0)
		for ; seen < size; seen++ {
			sum += <-inbox
		}
		sums <- sum
	}()
	settle()
	w.begin()
	go func() {
		for i := int64(0); i < size; i++ {
			inbox <- i
		}
	}()
	sum := <-sums
	w.end(size)
	w.expect("the sum", sum, size*(size-1)/2)
}

func fanin(w *watch, size int64) {
	const producers = 100
	inbox, sums, goes := make(chan int64, 1024), make(chan int64), make(chan struct{})
	go func() {
		received := int64(0)
		for received < producers*size {
			received += <-inbox
		}
		sums <- received
	}()
	for i := 0; i < producers; i++ {
		go func() {
			<-goes
			for sent := int64(0); sent < size; sent++ {
				inbox <- 1
			}
		}()
	}
	settle()
	w.begin()
	close(goes)
	received := <-sums
	w.end(producers * size)
	w.expect("messages", received, producers*size)
	w.expect("messages left over", int64(len(inbox)), 0)
}

type kind int

const (
	ping kind = iota
	pong
	start
)

type bigMessage struct {
	kind kind
	from chan bigMessage
}

func big(w *watch, size int64) {
	const processes = 500
	var pingers [processes]chan bigMessage
	judge := make(chan int64, processes)
	for i := range pingers {
		pingers[i] = make(chan bigMessage, processes) // room for a ping from each other process and a pong: no sender ever blocks
	}
	pinger := func(me int) {
		inbox, state, ponged := pingers[me], uint64(me*7919+1), int64(0)
		pingRandom := func() {
			other := me
			for other == me {
				other = int(random(&state) % processes)
			}
			pingers[other] <- bigMessage{ping, inbox}
		}
		for message := range inbox {
			switch message.kind {
			case ping:
				message.from <- bigMessage{pong, inbox}
			case pong:
				if ponged++; ponged == size {
					judge <- ponged
				} else {
					pingRandom()
				}
			case start:
				pingRandom()
			}
		}
	}
	for i := range pingers {
		go pinger(i)
	}
	settle()
	w.begin()
	for _, inbox := range pingers {
		inbox <- bigMessage{start, nil}
	}
	pongs := int64(0)
	for range pingers {
		pongs += <-judge
	}
	w.end(2 * processes * size)
	w.expect("pongs", pongs, processes*size)
}

func forkjoin(w *watch, size int64) {
	const processes = 10000
	var joiners [processes]chan int64
	var seen [processes]int64
	var over sync.WaitGroup
	over.Add(processes)
	for i := range joiners {
		joiners[i] = make(chan int64, 100)
		go func(i int) {
			for seen[i] < size {
				seen[i] += <-joiners[i]
			}
			over.Done()
		}(i)
	}
	settle()
	w.begin()
	go func() {
		for sent := int64(0); sent < processes*size; sent++ {
			joiners[sent%processes] <- 1
		}
	}()
	over.Wait()
	w.end(processes * size)
	total := int64(0)
	for _, n := range seen {
		total += n
	}
	w.expect("messages", total, processes*size)
}
