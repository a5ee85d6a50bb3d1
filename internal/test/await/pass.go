package await

import "time"

// realYear is after every fake time: that of a bubble of testing/synctest begins with 2000.
const realYear = 2020

// Pass lets time pass in a bubble of testing/synctest, where it is fake. It panics elsewhere,
// since no test waits for real time.
func Pass(d time.Duration) {
	if time.Now().Year() >= realYear {
		panic("await.Pass is called outside of a synctest bubble")
	}
	time.Sleep(d)
}
