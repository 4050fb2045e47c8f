// suite_talk.go - the programs in which processes ask each other for something.
package main

import (
	"encoding/binary"
	"sync"
)

// ---- chameneos ----

const creatures = 100

type visit struct {
	colour int
	answer chan int
}

func complement(a, b int) int {
	if a == b {
		return a
	}
	return 3 - a - b
}

func chameneosChannel(w *watch, size int64, capacity int) {
	mall := make(chan visit, capacity)
	go func() {
		for n := int64(0); n < size; n++ {
			a, b := <-mall, <-mall
			a.answer <- b.colour
			b.answer <- a.colour
		}
		for n := int64(0); n < int64(creatures); n++ {
			(<-mall).answer <- -1
		}
	}()
	settle()
	w.begin()
	met := group(creatures, func(index int) int64 {
		me, met := visit{index % 3, make(chan int, 1)}, int64(0)
		for {
			mall <- me
			other := <-me.answer
			if other < 0 {
				return met
			}
			met++
			me.colour = complement(me.colour, other)
		}
	})
	w.end(size)
	w.expect("meetings", met, 2*size)
}

func chameneosMutex(w *watch, size int64, _ int) {
	var lock sync.Mutex
	var waiting *visit
	left := size
	settle()
	w.begin()
	met := group(creatures, func(index int) int64 {
		me, met := visit{index % 3, make(chan int, 1)}, int64(0)
		for {
			lock.Lock()
			if left == 0 {
				lock.Unlock()
				return met
			}
			if waiting == nil {
				waiting = &me
				lock.Unlock()
				other := <-me.answer
				if other < 0 {
					return met
				}
				me.colour = complement(me.colour, other)
			} else {
				other := waiting
				waiting = nil
				left--
				lock.Unlock()
				colour := other.colour
				other.answer <- me.colour
				me.colour = complement(me.colour, colour)
			}
			met++
		}
	})
	w.end(size)
	w.expect("meetings", met, 2*size)
}

// ---- philosophers ----

const seats = 20

func philosophersMutex(w *watch, size int64, _ int) {
	var forks [seats]sync.Mutex
	settle()
	w.begin()
	meals := group(seats, func(index int) int64 {
		low, high := min(index, (index+1)%seats), max(index, (index+1)%seats)
		meals := int64(0)
		for meals < size {
			forks[low].Lock()
			forks[high].Lock()
			meals++
			forks[high].Unlock()
			forks[low].Unlock()
		}
		return meals
	})
	w.end(seats * size)
	w.expect("meals", meals, seats*size)
}

func philosophersChannel(w *watch, size int64, _ int) {
	var forks [seats]chan struct{}
	for i := range forks {
		forks[i] = make(chan struct{}, 1)
		forks[i] <- struct{}{}
	}
	settle()
	w.begin()
	meals := group(seats, func(index int) int64 {
		low, high := forks[min(index, (index+1)%seats)], forks[max(index, (index+1)%seats)]
		meals := int64(0)
		for meals < size {
			<-low
			<-high
			meals++
			high <- struct{}{}
			low <- struct{}{}
		}
		return meals
	})
	w.end(seats * size)
	w.expect("meals", meals, seats*size)
}

// ---- bank ----

const (
	accounts     = 1000
	tellers      = 100
	firstBalance = 1000
)

// transfers calls transfer for each transfer of one teller, and returns the number of transfers.
func transfers(index int, each int64, transfer func(from, to int, amount int64)) int64 {
	state := uint64(7919 * (index + 1))
	for n := int64(0); n < each; n++ {
		from := int(random(&state) % accounts)
		to := (from + 1 + int(random(&state)%(accounts-1))) % accounts
		transfer(from, to, 1+int64(random(&state)%100))
	}
	return each
}

func bankMutex(w *watch, size int64, _ int) {
	type account struct {
		sync.Mutex
		balance int64
	}
	var all [accounts]account
	for i := range all {
		all[i].balance = firstBalance
	}
	each := size/tellers + 1
	settle()
	w.begin()
	done := group(tellers, func(index int) int64 {
		return transfers(index, each, func(from, to int, amount int64) {
			a, b := &all[from], &all[to]
			all[min(from, to)].Lock()
			all[max(from, to)].Lock()
			if a.balance >= amount {
				a.balance -= amount
				b.balance += amount
			}
			b.Unlock()
			a.Unlock()
		})
	})
	w.end(tellers * each)
	var total int64
	for i := range all {
		total += all[i].balance
	}
	w.expect("transfers", done, tellers*each)
	w.expect("money", total, accounts*firstBalance)
}

func bankChannel(w *watch, size int64, capacity int) {
	type order struct {
		credit bool
		amount int64
		to     int
		answer chan bool
	}
	var inboxes [accounts]chan order
	balances := make(chan int64, accounts)
	for i := range inboxes {
		i := i
		inboxes[i] = make(chan order, 2*tellers) // no order may wait for an account that waits itself
		go func() {
			balance := int64(firstBalance)
			for o := range inboxes[i] {
				switch {
				case o.credit:
					balance += o.amount
					o.answer <- true
				case balance < o.amount:
					o.answer <- false
				default:
					balance -= o.amount
					inboxes[o.to] <- order{true, o.amount, 0, o.answer}
				}
			}
			balances <- balance
		}()
	}
	each := size/tellers + 1
	settle()
	w.begin()
	done := group(tellers, func(index int) int64 {
		answer := make(chan bool, 1)
		return transfers(index, each, func(from, to int, amount int64) {
			inboxes[from] <- order{false, amount, to, answer}
			<-answer
		})
	})
	w.end(tellers * each)
	var total int64
	for i := range inboxes {
		close(inboxes[i])
	}
	for range inboxes {
		total += <-balances
	}
	w.expect("transfers", done, tellers*each)
	w.expect("money", total, accounts*firstBalance)
}

// ---- dictionary ----

const (
	clients = 64
	keys    = 10000
)

// requests calls get or put for each request of one client, and returns the number of right answers.
func requests(index int, each int64, get func(key int64) (int64, bool), put func(key, value int64) int64) int64 {
	state, right := uint64(7919*(index+1)), int64(0)
	for n := int64(0); n < each; n++ {
		key := int64(random(&state)>>33) % keys
		if random(&state)%10 == 0 {
			if put(key, 7*key+1) > 0 {
				right++
			}
		} else if value, found := get(key); !found || value == 7*key+1 {
			right++
		}
	}
	return right
}

func dictionaryMutex(w *watch, size int64, _ int) {
	var lock sync.RWMutex
	dictionary, puts := map[int64]int64{}, int64(0)
	each := size/clients + 1
	settle()
	w.begin()
	right := group(clients, func(index int) int64 {
		return requests(index, each, func(key int64) (int64, bool) {
			lock.RLock()
			defer lock.RUnlock()
			value, found := dictionary[key]
			return value, found
		}, func(key, value int64) int64 {
			lock.Lock()
			defer lock.Unlock()
			dictionary[key] = value
			puts++
			return puts
		})
	})
	w.end(clients * each)
	w.expect("right answers", right, clients*each)
}

func dictionaryChannel(w *watch, size int64, capacity int) {
	type answer struct {
		value int64
		found bool
	}
	type request struct {
		isPut      bool
		key, value int64
		answer     chan answer
	}
	server := make(chan request, capacity)
	go func() {
		dictionary, puts := map[int64]int64{}, int64(0)
		for r := range server {
			if r.isPut {
				dictionary[r.key] = r.value
				puts++
				r.answer <- answer{puts, true}
				continue
			}
			value, found := dictionary[r.key]
			r.answer <- answer{value, found}
		}
	}()
	each := size/clients + 1
	settle()
	w.begin()
	right := group(clients, func(index int) int64 {
		back := make(chan answer, 1)
		return requests(index, each, func(key int64) (int64, bool) {
			server <- request{false, key, 0, back}
			a := <-back
			return a.value, a.found
		}, func(key, value int64) int64 {
			server <- request{true, key, value, back}
			return (<-back).value
		})
	})
	w.end(clients * each)
	w.expect("right answers", right, clients*each)
}

// ---- sieve ----

// countPrimes returns the number of primes below limit, and the number of messages that all filters receive.
func countPrimes(limit int64) (int64, int64) {
	primes, passed := []int64{}, int64(0)
	for number := int64(2); number < limit; number++ {
		i := 0
		for i < len(primes) && number%primes[i] != 0 {
			i++
		}
		passed += int64(i) + 1
		if i == len(primes) {
			primes = append(primes, number)
		}
	}
	return int64(len(primes)), passed + int64(len(primes))
}

func sieve(w *watch, size int64, capacity int) {
	primes, passed := countPrimes(size)
	over := make(chan int64)
	var filter func(index int64, in chan int64)
	filter = func(index int64, in chan int64) {
		var next chan int64
		prime := <-in
		for number := range in {
			if number%prime == 0 {
				continue
			}
			if next == nil {
				next = make(chan int64, capacity)
				go filter(index+1, next)
			}
			next <- number
		}
		if next == nil {
			over <- index
			return
		}
		close(next)
	}
	settle()
	w.begin()
	first := make(chan int64, capacity)
	go filter(1, first)
	go func() {
		for number := int64(2); number < size; number++ {
			first <- number
		}
		close(first)
	}()
	found := <-over
	w.end(passed)
	w.expect("primes", found, primes)
}

// ---- logistic ----

func logistic(w *watch, size int64, capacity int) {
	const series = 10
	rate := func(index int) float64 { return 3.46 + 0.0025*float64(index) }
	settle()
	w.begin()
	var last [series]float64
	group(series, func(index int) int64 {
		ask, answer := make(chan float64, capacity), make(chan float64, capacity)
		go func() {
			r := rate(index)
			for x := range ask {
				answer <- r * x * (1 - x)
			}
		}()
		x := 0.5
		for n := int64(0); n < size; n++ {
			ask <- x
			x = <-answer
		}
		close(ask)
		last[index] = x
		return 0
	})
	w.end(series * size)
	for index := range last {
		x, r := 0.5, rate(index)
		for n := int64(0); n < size; n++ {
			x = r * x * (1 - x)
		}
		if x-last[index] > 1e-9 || last[index]-x > 1e-9 {
			fail(1, "logistic: series %d is %f, not %f", index, last[index], x)
		}
	}
}

// ---- publish and subscribe ----

func pubsub(w *watch, size int64, capacity int) {
	const topics, subscribers, length = 10, 100, 64
	var inboxes [topics][subscribers]chan []byte
	for i := range inboxes {
		for j := range inboxes[i] {
			inboxes[i][j] = make(chan []byte, capacity)
		}
	}
	settle()
	w.begin()
	for i := 0; i < topics; i++ {
		i := i
		go func() {
			for n := int64(0); n < size; n++ {
				message := make([]byte, length)
				message[length-1] = 1
				for _, inbox := range inboxes[i] {
					inbox <- message
				}
			}
			for _, inbox := range inboxes[i] {
				close(inbox)
			}
		}()
	}
	got := group(topics*subscribers, func(index int) int64 {
		got := int64(0)
		for message := range inboxes[index/subscribers][index%subscribers] {
			got += int64(message[length-1])
		}
		return got
	})
	w.end(topics * subscribers * size)
	w.expect("deliveries", got, topics*subscribers*size)
}

// ---- request and reply with payloads ----

func request(w *watch, size int64, length, capacity int) {
	const pairs = 10
	each := size/pairs + 1
	settle()
	w.begin()
	answered := group(pairs, func(int) int64 {
		ask, answer := make(chan []byte, capacity), make(chan []byte, capacity)
		go func() {
			for message := range ask {
				reply := make([]byte, length)
				copy(reply, message)
				binary.LittleEndian.PutUint64(reply, binary.LittleEndian.Uint64(message)+1)
				answer <- reply
			}
		}()
		serial := uint64(0)
		buffer := make([]byte, length)
		for n := int64(0); n < each; n++ {
			binary.LittleEndian.PutUint64(buffer, serial)
			message := make([]byte, length)
			copy(message, buffer)
			ask <- message
			reply := binary.LittleEndian.Uint64(<-answer)
			if reply != serial+1 {
				fail(1, "request: the reply is %d, not %d", reply, serial+1)
			}
			serial = reply
		}
		close(ask)
		return int64(serial)
	})
	w.end(pairs * each)
	w.expect("round trips", answered, pairs*each)
}

func requestUnbuffered(w *watch, size int64, length int) { request(w, size, length, 0) }
func requestBuffered(w *watch, size int64, length int)   { request(w, size, length, 1) }
